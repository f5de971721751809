"""Consuming a backlog, beside a bare framed echo in the same minute.

    python bench/consume.py                400,000 messages of 128 bytes, three rounds of each shape
    python bench/consume.py --count N      another backlog
    python bench/consume.py --only push    shapes whose name contains the text
    python bench/consume.py --save NAME    also writes bench/results/NAME.txt

Shapes: `push` with an async handler, or a plain one in a thread, that counts the batch it is
given; `all read` also reads body and tag of each message; `one by one` gets one message a call;
`poll` is a loop around LitePullConsumer.poll. A pull brings 32 messages, RocketMQ's limit, or
1,024, which the broker of this run allows (maxTransferCountOnMessageInMemory). The broker has one
core and holds the backlog in eight queues, the consumer runs on the other. The rate is that of all
messages from the first call to the last. The mark, 0.5 M messages/s, is for the best shape. Of the
rounds the best counts: other tenants only ever make one worse. CPU us is the consumer's own time
for one message.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from cometmq import (
    AsyncLitePullConsumer,
    AsyncPushConsumer,
    ConsumeFrom,
    FlowLimits,
)
from messages import fill
from run import machine
from servers import Cores, broker, child, compiled, echo, measure, pin, save

TOPIC, BODY, QUEUES = "backlog", b"x" * 128, 8
MARK = 500_000
ALLOWED = [
    "maxTransferCountOnMessageInMemory=1024",
    "maxTransferBytesOnMessageInMemory=1048576",
    "maxTransferCountOnMessageInDisk=1024",
    "maxTransferBytesOnMessageInDisk=1048576",
]


class Count:
    """Counts messages, and the time from the first to the last."""

    def __init__(self, goal: int) -> None:
        self.goal, self.seen = goal, 0
        self.first = self.last = self.cpu = 0.0
        self.is_over = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def add(self, count: int) -> None:
        if not self.seen:
            self.first, self.cpu = time.perf_counter(), time.process_time()
        self.seen += count
        if self.seen >= self.goal:
            self.last, self.cpu = time.perf_counter(), time.process_time() - self.cpu
            self.loop.call_soon_threadsafe(self.is_over.set)

    def result(self) -> dict[str, float]:
        span = self.last - self.first
        return {
            "rate": self.seen / span,
            "us": self.cpu / self.seen * 1e6,
            "cores": self.cpu / span,
        }


async def push(
    namesrv: str,
    group: str,
    count: int,
    batch_size: int = 1024,
    in_threads: bool = False,
    pull_batch_size: int = 32,
    reads: bool = False,
) -> Count:
    counted = Count(count)

    async def handle(messages) -> None:
        counted.add(len(messages))

    def handle_in_thread(messages) -> None:
        if reads:
            assert all(message.body and message.tags for message in messages)
        counted.add(len(messages))

    consumer = AsyncPushConsumer(
        group,
        namesrv=namesrv,
        consume_from=ConsumeFrom.FIRST,
        batch_size=batch_size,
        pull_batch_size=pull_batch_size,
        pull_batch_bytes=1 << 20,
        consume_threads=1,
        flow=FlowLimits(count=10_000, span=20_000),
    )
    consumer.subscribe(TOPIC, "*", handle_in_thread if in_threads else handle)
    async with consumer:
        await asyncio.wait_for(counted.is_over.wait(), 120)
    return counted


async def poll(namesrv: str, group: str, count: int, pull_batch_size: int = 32) -> Count:
    counted = Count(count)
    settings = {
        "consume_from": ConsumeFrom.FIRST,
        "pull_batch_size": pull_batch_size,
        "flow": FlowLimits(count=10_000, span=20_000),
    }
    async with AsyncLitePullConsumer(group, namesrv=namesrv, **settings) as consumer:
        consumer.assign(await consumer.fetch_message_queues(TOPIC))
        while counted.seen < count:
            if messages := await consumer.poll(10.0, 1024):
                counted.add(len(messages))
    return counted


SHAPES = {
    "push, batches of 32": push,
    "push, 32 in threads": lambda *args: push(*args, in_threads=True),
    "push, one by one": lambda *args: push(*args, batch_size=1),
    "poll, 32": poll,
    "push, batches of 1024": lambda *args: push(*args, pull_batch_size=1024),
    "push, 1024 in threads": lambda *args: push(*args, in_threads=True, pull_batch_size=1024),
    "push, 1024, all read": lambda *args: push(
        *args, in_threads=True, pull_batch_size=1024, reads=True
    ),
    "poll, 1024": lambda *args: poll(*args, pull_batch_size=1024),
}


def one_round(shape: str, namesrv: str, group: str, count: int, cpu: int) -> dict[str, float]:
    """One round in a process of its own."""
    arguments = ["--shape", shape, "--namesrv", namesrv, "--group", group]
    arguments += ["--count", str(count), "--cpu", str(cpu)]
    return child(shape, arguments, 150)


def rounds(namesrv: str, told: argparse.Namespace, cores: Cores) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    for turn in range(told.rounds):
        for at, shape in enumerate(SHAPES):
            if told.only in shape:
                found = one_round(shape, namesrv, f"g{turn}-{at}", told.count, cores.generator)
                best[shape] = max(found, best.get(shape, found), key=lambda one: one["rate"])
    return best


def report(told: argparse.Namespace) -> str:
    cores, why = Cores.pick(), compiled()
    with echo(cores, why is None) as bare:
        asked = {"connections": 1, "window": 64, "body": 128, "keys": 0, "pull": 0}
        raw = [measure(bare, cores, why is None, **asked, topic="bench128") for _ in range(3)]
        bare_rate = max(one["requests"] / one["wall_s"] for one in raw)
    with broker(cores, Path(tempfile.gettempdir()), ALLOWED) as server:
        fill(server.namesrv, TOPIC, QUEUES, told.count, BODY)
        best = rounds(server.namesrv, told, cores)
    lines = [machine(cores, why), f"backlog    {told.count} messages of {len(BODY)} bytes", ""]
    lines.append(f"{'echo, 1x64':28}{bare_rate:12,.0f} requests/s")
    for shape, one in best.items():
        text = (
            f"{shape:28}{one['rate']:12,.0f} messages/s {one['rate'] / bare_rate:8.2f} of the echo"
        )
        text += f"{one['us']:8.2f} CPU us{one['cores']:8.2f} cores"
        if shape == max(best, key=lambda name: best[name]["rate"]):
            text += f"   mark {MARK:,}: {'reached' if one['rate'] >= MARK else 'missed'}"
        lines.append(text)
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--save", default="")
    for hidden in ("--shape", "--namesrv", "--group"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, default=-1, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    told = arguments()
    if told.shape:
        pin(os.getpid(), told.cpu)
        counted = asyncio.run(SHAPES[told.shape](told.namesrv, told.group, told.count))
        print(json.dumps(counted.result()))
        return
    text = report(told)
    print(text)
    save(told.save, text)


if __name__ == "__main__":
    main()
