"""How late delayed messages come: 100,000 due within one minute, on a broker that sends as well.

    python bench/delay.py --messages 100000 --seconds 60 --delay 30

Sends to one level, evenly over the seconds, so that they become due evenly over as many. Lateness
is the difference between two store times of the broker: when a message came to its topic, and when
the record that waited on the level was due. Prints the line that docs quote.
"""

import argparse
import asyncio
import os
import time
from dataclasses import dataclass

from cometmq.net.channel import Channel, connect
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from messages import pull_header, send_header
from servers import Cores, broker

TOPIC, QUEUES, WINDOW, TIMEOUT_S = "Delayed", 8, 64, 30.0
BODY = bytes(128)


@dataclass
class Work:
    """What was asked for on the command line."""

    messages: int
    seconds: float
    delay: int


async def send_all(channel: Channel, work: Work) -> None:
    """Sends evenly over the time, `WINDOW` requests under way at most."""
    began, room = time.monotonic(), asyncio.Semaphore(WINDOW)
    tasks = set()

    async def send(number: int) -> None:
        pairs = {"UNIQ_KEY": f"{number:032X}", "DELAY": "1"}
        header = send_header(TOPIC, number % QUEUES, QUEUES, **pairs)
        command = request(RequestCode.SEND_MESSAGE_V2, 0, header, BODY)
        answer = await channel.call(command, TIMEOUT_S)
        assert answer.code == 0, answer
        room.release()

    for number in range(work.messages):
        due = began + number * work.seconds / work.messages
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        await room.acquire()
        task = asyncio.create_task(send(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def read(channel: Channel, topic: str, queue_id: int) -> list[stored.StoredRecord]:
    """All records of a queue."""
    found: list[stored.StoredRecord] = []
    while True:
        header = pull_header(topic, queue_id, len(found))
        answer = await channel.call(request(RequestCode.PULL_MESSAGE, 0, header), TIMEOUT_S)
        if answer.code:
            return found
        found += stored.iterate(answer.body)


def unique(record: stored.StoredRecord) -> bytes:
    """What tells messages apart."""
    return properties.find(record.properties, b"UNIQ_KEY") or b""


async def measure(port: int, work: Work) -> dict[str, float]:
    """Sends, waits until all are due, reads what came, compares."""
    channel = await connect(f"127.0.0.1:{port}")
    began = time.monotonic()
    await send_all(channel, work)
    sent_s = time.monotonic() - began
    await asyncio.sleep(work.delay + 2)
    waited = {unique(r): r.store_ms for r in await read(channel, "SCHEDULE_TOPIC_XXXX", 0)}
    came = [r for queue_id in range(QUEUES) for r in await read(channel, TOPIC, queue_id)]
    channel.close()
    late = sorted(r.store_ms - waited[unique(r)] - work.delay * 1000 for r in came)
    assert len(waited) == work.messages, f"{len(waited)} of {work.messages} were stored"
    return {
        "sent_s": sent_s,
        "missing": work.messages - len({unique(r) for r in came}),
        "twice": len(came) - len({unique(r) for r in came}),
        "first_ms": late[0],
        "p50_ms": late[len(late) // 2],
        "p99.9_ms": late[int(len(late) * 0.999)],
        "last_ms": late[-1],
    }


def main() -> None:
    """Runs it once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--delay", type=int, default=30, help="seconds")
    args = parser.parse_args()
    work = Work(args.messages, args.seconds, args.delay)
    with broker(Cores.pick(), None, [f"messageDelayLevel={work.delay}s"]) as server:
        found = asyncio.run(measure(server.port, work))
    print(
        f"{work.messages} messages sent in {found['sent_s']:.0f} s, due {work.delay} s later: "
        f"late by {found['p50_ms']:.0f} ms (p50), {found['p99.9_ms']:.0f} ms (p99.9), "
        f"{found['first_ms']:.0f} to {found['last_ms']:.0f} ms (all); "
        f"{found['missing']:.0f} missing, {found['twice']:.0f} twice; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
