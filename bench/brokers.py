"""One broker beside several on the same cores: `standalone --brokers N` at its fastest.

    python bench/brokers.py                  1 and 2 brokers in turns, three rounds of 5 s each
    python bench/brokers.py --brokers 4      1, 2 and 4
    python bench/brokers.py --save NAME      also writes bench/results/NAME.txt

Each broker has a generator of its own (load.c), all at the same time, nothing pinned: brokers and
generators share the cores, so two cores cannot show twice the rate. CPU is that of the brokers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from servers import Cores, Server, Shares, compiled, end, measure, save, until_idle, wait_ready

SHAPES = {
    "send 64x1, KEYS": {"connections": 64, "window": 1, "body": 128, "keys": 1},
    "send 1x64, KEYS": {"connections": 1, "window": 64, "body": 128, "keys": 1},
    "pull of 32, 8x1": {"connections": 8, "window": 1, "body": 128, "pull": 32},
}


@contextmanager
def cluster(count: int) -> Iterator[list[Server]]:
    """So many brokers with fresh stores, started by one command."""
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        ready, conf = Path(place) / "ready.json", Path(place) / "broker.conf"
        conf.write_text("defaultTopicQueueNums=8\nautoCreateTopicEnable=true\n")
        command = [sys.executable, "-m", "cometmq.cli.main", "standalone", "-c", str(conf)]
        command += ["--store", f"{place}/store", "--brokers", str(count)]
        command += ["--namesrv-port=0", "--broker-port=0", "--ready-file", str(ready)]
        with (Path(place) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_ready(ready.exists, process, Path(place) / "log")
            said = json.loads(ready.read_text())
            addresses = said.get("brokers") or {"broker-a": said["broker"]}
            yield [
                Server(name, int(addr.rpartition(":")[2]), pid_of(process.pid, name))
                for name, addr in addresses.items()
            ]
        finally:
            end(process)


def pid_of(parent: int, name: str) -> int:
    """The process of a broker: a child of the command, or the command itself."""
    for each in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in each.read_text().split():
            if f"brokerName={name}\0" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    return parent


def round_of(servers: list[Server], options: dict[str, object]) -> tuple[float, float, float]:
    """Messages a second of all brokers, microseconds of CPU a message, the worst p99 in ms."""
    for server in servers:
        until_idle(server)
    with ThreadPoolExecutor(len(servers)) as pool:
        found = list(
            pool.map(lambda each: measure(each, Cores(-1, -1), in_c=True, **options), servers)
        )
    if any(one["errors"] or one["unmatched"] or not one["messages"] for one in found):
        sys.exit(f"bench: a broker answered with errors: {found}")
    cpu_us = sum(one["server_cpu_s"] for one in found) / sum(one["messages"] for one in found) * 1e6
    rate = sum(one["messages"] / one["wall_s"] for one in found)
    return rate, cpu_us, max(one["p99_ms"] for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=2, help="the largest number")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    args = parser.parse_args()
    if problem := compiled():
        sys.exit(f"bench: {problem}")
    counts = [1]
    while counts[-1] < args.brokers:
        counts.append(min(2 * counts[-1], args.brokers))
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    shares = Shares()
    for _ in range(args.rounds):
        for count in counts:
            with cluster(count) as servers:
                for name, options in SHAPES.items():
                    given = {**options, "seconds": args.seconds, "warm": 1.0, "topic": "bench"}
                    found.setdefault((name, count), []).append(round_of(servers, given))
    lines = [f"{'work':18}{'brokers':>8}{'messages/s':>28}{'of one':>8}{'CPU us':>8}{'p99 ms':>8}"]
    for name in SHAPES:
        for count in counts:
            rates, cpus, p99s = zip(*found[name, count], strict=True)
            one = median(each[0] for each in found[name, 1])
            spread = f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
            lines.append(
                f"{name:18}{count:8}{spread:>28}{median(rates) / one:8.2f}"
                f"{median(cpus):8.1f}{median(p99s):8.1f}"
            )
    text = "\n".join([shares.told(), *lines])
    print(text)
    if args.save:
        save(args.save, text)


if __name__ == "__main__":
    main()
