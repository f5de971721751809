"""What a send costs, and what the broker keeps in memory, as each thing that can grow grows.

    python bench/growth.py                  all curves, about half an hour
    python bench/growth.py --only queues    one (messages, queues, connections, held_pulls, groups,
                                            sizes, starts)
    python bench/growth.py --scale 0.01     each up to a hundredth
    python bench/growth.py --save growth    also writes bench/results/growth.txt

One generator (bench/load.c) and one broker share the cores. A point of a curve is a round of sends
of 128 B, each with its own UNIQ_KEY and KEYS, with the key index on. CPU is the broker's for one
request, all threads; memory is what belongs to the broker alone (RssAnon), the mapped files of the
store left out. `starts` fills a store up to 10 GiB and starts it, after a stop and after kill -9.
The last line of a curve compares its ends; a step of a curve is a factor of ten.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from hostile import dial, new_topic, pull_header
from run import machine
from servers import Cores, Server, Shares, broker, compiled, measure, save, until_idle

ANYWHERE = Cores(-1, -1)
ROUND_S, FILL_S, HOLD_MS = 3.0, 10.0, 600_000
TOPIC = "growth"


@dataclass
class Point:
    """One point of a curve: how much there was, and what a request cost then."""

    grown: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    mib: float
    more: str = ""

    def line(self) -> str:
        return (
            f"{self.grown:>14,.0f}{self.cpu_us:>10.2f}{self.p50_ms:>10.2f}{self.p99_ms:>10.2f}"
            f"{self.mib:>10.1f}  {self.more}"
        ).rstrip()


@dataclass
class Curve:
    """What grows, and its points."""

    name: str
    of: str
    points: list[Point] = field(default_factory=list)

    def add(self, point: Point) -> None:
        self.points.append(point)
        print(f"{self.name:<12}{point.line()}", flush=True)

    def lines(self) -> list[str]:
        first, last = self.points[0], self.points[-1]
        head = f"{self.of:>14}{'CPU us':>10}{'p50 ms':>10}{'p99 ms':>10}{'MiB':>10}"
        ends = f"last to first: {last.cpu_us / first.cpu_us:.2f} x the CPU of a request, "
        ends += f"{last.mib - first.mib:+.1f} MiB"
        return [f"{self.name}", head, *(point.line() for point in self.points), ends, ""]


def anonymous_mib(pid: int) -> float:
    """Memory that is the process's own."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def stored(port: int, queues: int) -> int:
    """The messages of the topic, by the ends of its queues."""
    with BlockingChannel(f"127.0.0.1:{port}", 30) as channel:
        found = 0
        for queue in range(queues):
            asked = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue)
            answer = channel.call(RequestCode.GET_MAX_OFFSET, asked)
            found += int(answer.ext["offset"])
    return found


def ask(server: Server, seconds: float = ROUND_S, **options: object) -> dict[str, float]:
    """One round of the generator; ends the bench where anything went wrong."""
    options = {"connections": 64, "body": 128, "keys": 1, "topic": TOPIC} | options
    raw = measure(server, ANYWHERE, True, seconds=seconds, warm=0.5, **options)
    if raw["errors"] or raw["unmatched"] or not raw["requests"]:
        sys.exit(f"growth: {options}: {raw}")
    return raw


def fill(server: Server, count: int) -> None:
    """Send until the topic has so many messages."""
    while (missing := count - stored(server.port, 8)) > 0:
        ask(server, min(FILL_S, max(0.05, missing / 120_000)), connections=1, window=64)


def point(server: Server, grown: float, more: str = "", **options: object) -> Point:
    """Measure sends once the broker has nothing else to do."""
    until_idle(server, 60)
    raw = ask(server, **options)
    cpu_us = raw["server_cpu_s"] / raw["requests"] * 1e6
    until_idle(server, 60)
    mib = anonymous_mib(server.pid)
    return Point(grown, cpu_us, raw["p50_ms"], raw["p99_ms"], mib, more)


@contextmanager
def a_broker(queues: int = 8) -> Iterator[Server]:
    """A broker with the topic, warmed up."""
    with broker(ANYWHERE, None, []) as server:
        with dial(server.port) as link:
            new_topic(link, TOPIC, queues)
        ask(server, 1.0, topic="warm")
        yield server


def powers(first: int, last: float) -> list[int]:
    """The powers of ten from the one to the other, and the last."""
    found = []
    while first < last:
        found.append(first)
        first *= 10
    return [*found, int(last)]


def messages(scale: float) -> Curve:
    """A log that grows."""
    curve = Curve("messages", "in the log")
    with a_broker() as server:
        for count in powers(10_000, 10_000_000 * scale):
            fill(server, count)
            curve.add(point(server, stored(server.port, 8)))
    return curve


def queues(scale: float) -> Curve:
    """A topic of ever more queues, all of them sent to in turn."""
    curve = Curve("queues", "queues")
    for count in powers(1, 10_000 * scale):
        with a_broker(count) as server:
            while stored(server.port, count) < 20 * count:  # the files of all queues are there
                ask(server, 2.0, queues=count)
            curve.add(point(server, count, queues=count))
    return curve


def connections(scale: float) -> Curve:
    """Ever more connections with one request each on its way."""
    curve = Curve("connections", "connections")
    with a_broker() as server:
        for count in powers(1, 2_000 * scale):
            curve.add(point(server, count, connections=count))
    return curve


def held_pulls(scale: float) -> Curve:
    """Pulls that wait for messages of another topic, a connection each."""
    curve, held = Curve("held pulls", "held"), 0
    with a_broker() as server, ExitStack() as links:
        with dial(server.port) as link:
            new_topic(link, "quiet", 8)
        for count in [0, *powers(10, 1_000 * scale)]:
            for number in range(held, count):
                asked = pull_header(
                    "quiet", queue_id=number % 8, sys_flag=6, suspend_timeout_ms=HOLD_MS
                )
                frame = request(RequestCode.PULL_MESSAGE, number, asked).encode()
                links.enter_context(dial(server.port)).sendall(frame)
            held = max(held, count)
            curve.add(point(server, count))
    return curve


def groups(scale: float) -> Curve:
    """Groups that have pulled and committed."""
    curve, made = Curve("groups", "groups"), 0
    with a_broker() as server:
        ask(server, 1.0)
        for count in powers(1, 10_000 * scale):
            with BlockingChannel(f"127.0.0.1:{server.port}", 30) as channel:
                for number in range(made, count):
                    name = f"Growth-{number}"
                    asked = pull_header(TOPIC, consumer_group=name, queue_id=number % 8)
                    channel.call(RequestCode.PULL_MESSAGE, asked)
                    commit = UpdateConsumerOffsetRequestHeader(
                        consumer_group=name, topic=TOPIC, queue_id=number % 8, commit_offset=32
                    )
                    channel.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            made = count
            curve.add(point(server, count))
    return curve


def sizes(scale: float) -> Curve:
    """Bodies of ever more bytes; the CPU of a MiB stands behind."""
    curve = Curve("sizes", "bytes")
    with a_broker() as server:
        for count in (16, 128, 1024, 16_384, 262_144, 4_000_000):
            if count <= 4_000_000 * scale:
                found = point(server, count, connections=4, body=count)
                found.more = f"{found.cpu_us / 1e3 / count * 1_048_576:,.1f} ms a MiB"
                curve.add(found)
    return curve


def starts(scale: float) -> Curve:
    """A store of up to 10 GiB: the time from the command to the first answers."""
    curve = Curve("starts", "MiB in the log")
    root = Path(tempfile.mkdtemp(prefix="cometmq-growth-"))
    try:
        cluster = LocalCluster(root / "store", timeout_s=600)
        for count in powers(102, 10_240 * scale):
            _fill(cluster, count)
            for crashed in (False, True):
                curve.add(_restarted(cluster, count, crashed=crashed))
        cluster.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return curve


def _server(cluster: LocalCluster) -> Server:
    port = int(cluster.broker.rpartition(":")[2])
    return Server("broker", port, cluster.pid, cluster.namesrv)


def _fill(cluster: LocalCluster, mib: int) -> None:
    """Send messages of 1 KiB until the log has so many MiB."""
    cluster.start()
    with dial(_server(cluster).port) as link:
        new_topic(link, TOPIC, 8)
    while stored(_server(cluster).port, 8) * 1_280 < mib * 1_048_576:
        ask(_server(cluster), min(FILL_S, mib / 100), connections=16, window=16, body=1024)
    until_idle(_server(cluster), 60)


def _restarted(cluster: LocalCluster, mib: int, *, crashed: bool) -> Point:
    """End the broker, start it and send."""
    if crashed:
        cluster.kill()
    else:
        cluster.stop_broker()
    began = time.monotonic()
    cluster.restart()
    stored(_server(cluster).port, 8)
    ready_s = time.monotonic() - began
    found = point(_server(cluster), mib, connections=4, body=1024)
    found.more = f"{'kill -9' if crashed else 'stop'}: it answers after {ready_s:.2f} s"
    return found


CURVES: dict[str, Callable[[float], Curve]] = {
    one.__name__: one for one in (messages, queues, connections, held_pulls, groups, sizes, starts)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CURVES, default="", help="one curve")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the largest points")
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt, too")
    args = parser.parse_args()
    if why := compiled():
        parser.error(f"the generator is written in C, and there is {why}")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    shares = Shares()
    lines = [
        line
        for name, made in CURVES.items()
        if args.only in ("", name)
        for line in made(args.scale).lines()
    ]
    text = "\n".join([machine(ANYWHERE, None), f"shares     {shares.told()}", "", *lines])
    print(text)
    save(args.save, text.rstrip())


if __name__ == "__main__":
    main()
