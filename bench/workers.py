"""How many threads, tasks or processes a handler wants: messages/s by what it does.

    python bench/workers.py                 all, about two minutes
    python bench/workers.py --only "10 ms"  the handlers whose name contains the text
    python bench/workers.py --save NAME     also writes bench/results/NAME.txt

Three handlers of one message: waiting for 1 ms, waiting for 10 ms, and 1 ms of Python on the CPU.
Each size is a consumer in a process of its own that reads a backlog of sixteen queues; after half
a second of warming up it is counted for one and a half. The ceiling of what waits is the number of
workers over the handler's time; of what computes it is one core for threads and tasks, which share
an interpreter, and all cores for processes.
"""

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

from cometmq import ConsumeFrom, PushConsumer
from cometmq.testing.cluster import LocalCluster
from messages import fill
from servers import Shares, child, save

TOPIC, QUEUES, BACKLOG = "work", 16, 60_000
NUMBERS = {"threads": (1, 4, 16, 64), "tasks": (1, 4, 16, 64), "processes": (1, 2, 4)}
WARM_S, MEASURED_S = 0.5, 1.5
HANDLERS = {"waits 1 ms": 0.001, "waits 10 ms": 0.01, "computes 1 ms": 0.001}
COUNTS, WORK = "BENCH_COUNTS", "BENCH_WORK"
_out = -1


def tally() -> None:
    """A byte a message, in a file that all processes of a consumer share."""
    global _out
    if _out < 0:
        _out = os.open(os.environ[COUNTS], os.O_WRONLY | os.O_APPEND)
    os.write(_out, b".")


def compute(seconds: float) -> None:
    """So much time of this thread's own on a CPU."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def work(_messages) -> None:
    """The plain handler, in a thread or a process."""
    name = os.environ[WORK]
    (compute if name.startswith("computes") else time.sleep)(HANDLERS[name])
    tally()


async def work_async(_messages) -> None:
    """The async handler."""
    name = os.environ[WORK]
    if name.startswith("computes"):
        compute(HANDLERS[name])
    else:
        await asyncio.sleep(HANDLERS[name])
    tally()


def member(told: dict) -> float:
    """Consume for a while; messages/s."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        counts.touch()
        os.environ |= {COUNTS: str(counts), WORK: told["handler"]}
        consumer = PushConsumer(
            f"{told['kind']}-{told['number']}-{told['handler']}".replace(" ", "-"),
            namesrv=told["namesrv"],
            workers="process" if told["kind"] == "processes" else "thread",
            consume_threads=told["number"],
            consume_from=ConsumeFrom.FIRST,
            stop_timeout_s=1.0,
        )
        consumer.subscribe(TOPIC, "*", work_async if told["kind"] == "tasks" else work)
        with consumer:
            while not counts.stat().st_size:
                time.sleep(0.01)
            time.sleep(WARM_S)
            before, began = counts.stat().st_size, time.monotonic()
            time.sleep(MEASURED_S)
            return (counts.stat().st_size - before) / (time.monotonic() - began)


def ceiling(handler: str, kind: str, number: int) -> float:
    """Messages/s that the handler's time allows."""
    at_once = number
    if handler.startswith("computes"):
        at_once = min(number, os.cpu_count() or 1) if kind == "processes" else 1
    return at_once / HANDLERS[handler]


def report(only: str) -> str:
    shares = Shares()
    lines = [f"{'handler':<14} {'workers':>12}  {'reached':>8}  {'ceiling':>8}  {'share':>5}"]
    with LocalCluster() as cluster:
        fill(cluster.namesrv, TOPIC, QUEUES, BACKLOG, b"x" * 100)
        for handler in (name for name in HANDLERS if only in name):
            for kind, number in ((kind, n) for kind, some in NUMBERS.items() for n in some):
                told = {"namesrv": cluster.namesrv, "handler": handler}
                told |= {"kind": kind, "number": number}
                rate = float(child("a consumer", ["--member", json.dumps(told)], 120))
                most = ceiling(handler, kind, number)
                lines.append(
                    f"{handler:<14} {number:>2} {kind:<9}  {rate:>8.0f}  {most:>8.0f}  "
                    f"{rate / most:>5.2f}"
                )
                print(lines[-1], flush=True)
    return "\n".join([f"command    {shlex.join(['python', *sys.argv])}", shares.told(), "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--save", metavar="NAME", default="")
    parser.add_argument("--member", type=json.loads, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.member:
        print(json.dumps(member(told.member)))
        return
    text = report(told.only)
    print("\n" + text)
    save(told.save, text)


if __name__ == "__main__":
    main()
