"""Work that keeps a CPU busy, in worker processes; keys still keep their order.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
Workers are spawned: they import this file, so what starts the consumer stands under `main`.
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from cometmq import Message, MessageExt, Producer, PushConsumer

KEYS, STEPS = 4, 5
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def crunch(messages: Sequence[MessageExt]) -> None:
    """Runs in a worker: what it finds it must put somewhere, here at the end of a file."""
    for message in messages:
        found = sum(number * number for number in range(int(message.body)))
        with Path(message.properties["results"]).open("a") as results:
            results.write(f"{os.getpid()} {message.sharding_key} {message.body.decode()} {found}\n")


def main() -> None:
    """Send work for four keys, and read what the workers found."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "results"
        place.touch()
        with Producer("example-labs", namesrv=namesrv) as producer:
            producer.send_many(
                [
                    Message(
                        "samples",
                        b"%d" % (10_000 + step),
                        sharding_key=f"lab-{key}",
                        properties={"results": str(place)},
                    )
                    for step in range(STEPS)
                    for key in range(KEYS)
                ]
            )
        consumer = PushConsumer(
            "example-crunchers",
            namesrv=namesrv,
            workers="process",
            consume_threads=2,  # processes
            order="key",
            state_dir=folder,
            consume_from="first",
        )
        consumer.subscribe("samples", "*", crunch)
        with consumer:
            end = time.monotonic() + 60
            while len(lines := place.read_text().splitlines()) < KEYS * STEPS:
                assert time.monotonic() < end, "the messages did not come"
                time.sleep(0.05)
    by_lab = defaultdict(list)
    for line in lines:
        _, lab, size, _ = line.split()
        by_lab[lab].append(int(size))
    assert all(sizes == sorted(sizes) for sizes in by_lab.values())
    print(len(lines), "samples by", len({line.split()[0] for line in lines}), "processes")


if __name__ == "__main__":
    main()
