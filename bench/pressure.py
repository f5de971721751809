"""Consumers under pressure: orderly, concurrent and by key, beside the ceiling of each.

    python bench/pressure.py                 ten consumers of ten threads, 16 then 100 queues
    python bench/pressure.py --quick         three consumers, short
    python bench/pressure.py --only 16      the parts whose name contains the text: 16, 100, grown
    python bench/pressure.py --keys zipf     keys by chance, the n-th 1/n as often as the first;
                                             uniform: all alike; turn (default): each in its turn
    python bench/pressure.py --paced 500     no backlog: so many messages/s, and how late each is
                                             done after the moment when it should have been sent
    python bench/pressure.py --save NAME     also writes bench/results/NAME.txt

The handler sleeps 10 ms, so the work is waiting: what counts is how many handlers run at once. Each
consumer is a process of its own; all read a backlog of keyed messages. The ceiling is the smaller
of queues (orderly), keys (by key) and threads, over the handler's time. At the end the topic is
grown from 16 to 100 queues while messages are sent and handled, and it is counted how many were
handled before an earlier one of their key: once with a backlog in the old queues, once without.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from random import Random

from cometmq import Admin, Message, Producer, PushConsumer
from cometmq.testing.cluster import LocalCluster
from servers import Shares, save

HERE = Path(__file__).resolve().parent
HANDLER_S = 0.01
BODY = b"x" * 100
ORDERS = {"orderly": "queue", "concurrent": "none", "by key": "key"}


@dataclass(frozen=True)
class Load:
    """How much, and for how long."""

    consumers: int = 10
    threads: int = 10
    keys: int = 1000
    backlog: int = 300_000
    warm_s: float = 8.0
    measured_s: float = 8.0
    spread: str = "turn"

    @cached_property
    def weights(self) -> list[float]:
        """How often each key comes, added up."""
        is_zipf = self.spread == "zipf"
        return list(accumulate(1 / rank if is_zipf else 1.0 for rank in range(1, self.keys + 1)))

    def key_of(self, number: int) -> int:
        """The key of a message: the same in each run."""
        if self.spread == "turn":
            return number % self.keys
        return Random(number).choices(range(self.keys), cum_weights=self.weights)[0]

    def ceiling(self, order: str, queues: int) -> float:
        """Messages/s that waiting handlers allow: by key all, as there are more keys than threads.

        A hot key lets its queue wait for it in the end, the others go on.
        """
        at_once = self.consumers * self.threads
        assert at_once <= self.keys, "each thread has a key to handle"
        return (min(at_once, queues) if order == "orderly" else at_once) / HANDLER_S


QUICK = Load(consumers=3, threads=4, keys=100, backlog=20_000, warm_s=4.0, measured_s=3.0)


def member(told: dict) -> None:
    """One consumer: says on its output how many it has handled, whenever a line comes in."""
    lock, counts, seen, late_s = threading.Lock(), [0], [], []

    def handle(messages: list) -> None:
        time.sleep(HANDLER_S)
        with lock:
            counts[0] += len(messages)
            due = [float(text) for one in messages if (text := one.properties.get("due"))]
            late_s.extend(time.time() - at for at in due)
            if told["notes"]:
                for message in messages:
                    step = int(message.properties["step"])
                    seen.append((time.time(), message.sharding_key, step))

    consumer = PushConsumer(
        told["group"],
        namesrv=told["namesrv"],
        order=told["order"],
        consume_threads=told["threads"],
        consume_from="first",
        state_dir=told["state_dir"],
        rebalance_s=1.0,
    )
    consumer.subscribe(told["topic"], "*", handle)
    with consumer:
        for line in sys.stdin:
            with lock:
                asked = {"count": counts[0], "at": time.monotonic()}
                if line.strip() == "seen":
                    asked["seen"] = seen
                if line.strip() == "late":
                    asked["late"] = late_s
            print(json.dumps(asked), flush=True)


class Group:
    """The members of one group, in processes."""

    def __init__(self, load: Load, namesrv: str, topic: str, order: str, *, notes=False) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="pressure-")
        told = {"group": f"{order}-{topic}".replace(" ", "-"), "namesrv": namesrv, "topic": topic}
        told |= {"order": ORDERS[order], "threads": load.threads, "notes": notes}
        told["state_dir"] = self._place.name
        self._members = [
            subprocess.Popen(
                [sys.executable, __file__, "--member", json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(load.consumers)
        ]

    def ask(self, what="count") -> list[dict]:
        for one in self._members:
            one.stdin.write(what + "\n")
            one.stdin.flush()
        return [json.loads(one.stdout.readline()) for one in self._members]

    def count(self) -> int:
        return sum(found["count"] for found in self.ask())

    def rate(self, seconds: float) -> float:
        """Messages/s of all members, each by its own times: a busy machine answers late."""
        before = self.ask()
        time.sleep(seconds)
        pairs = zip(before, self.ask(), strict=True)
        return sum((b["count"] - a["count"]) / (b["at"] - a["at"]) for a, b in pairs)

    def stop(self) -> None:
        for one in self._members:
            one.stdin.close()
        for one in self._members:
            one.wait(60)
        self._place.cleanup()


def fill(namesrv: str, topic: str, load: Load, count: int, first: int = 0) -> None:
    """Send `count` messages of all keys in turn."""
    with Producer("pressure", namesrv=namesrv) as producer:
        for at in range(first, first + count, 5000):
            part = range(at, min(at + 5000, first + count))
            producer.send_many([keyed(topic, number, load) for number in part], timeout_s=60)


def keyed(topic: str, number: int, load: Load, **more: str) -> Message:
    properties = {"step": str(number // load.keys), **more}
    return Message(topic, BODY, sharding_key=f"key-{load.key_of(number)}", properties=properties)


def paced(load: Load, names: str, per_second: float) -> list[str]:
    """Send at a fixed pace, whatever becomes of it; how late messages are done, by order."""
    lines = [
        f"{'queues':>6}  {'order':<10}  {'sent':>8}  {'p50 ms':>8}  {'p99 ms':>8}  {'p99.9':>8}"
    ]
    for order in ORDERS:
        topic = f"paced-{order}".replace(" ", "-")
        with Admin(namesrv=names) as admin:
            admin.create_topic(topic, queues=100)
        group = Group(load, names, topic, order)
        try:
            time.sleep(load.warm_s / 2)
            count = int(per_second * load.measured_s)
            with Producer("pressure", namesrv=names) as producer:
                began, sent = time.time(), 0
                while sent < count:
                    until = min(count, int((time.time() - began) * per_second) + 1)
                    part = range(sent, until)
                    due = [keyed(topic, n, load, due=str(began + n / per_second)) for n in part]
                    if due:
                        producer.send_many(due, timeout_s=60)
                    sent = until
                    time.sleep(0.005)
            settle(group, count)
            late = sorted(one * 1000 for found in group.ask("late") for one in found["late"])
        finally:
            group.stop()
        at = (late[int(share * (len(late) - 1))] for share in (0.5, 0.99, 0.999))
        figures = "".join(f"  {one:>8.0f}" for one in at)
        lines.append(f"{100:>6}  {order:<10}  {count:>8}{figures}")
        print(lines[-1], flush=True)
    return lines


def reached(load: Load, namesrv: str, topic: str, order: str) -> float:
    """Messages/s of one group once it has settled."""
    group = Group(load, namesrv, topic, order)
    try:
        time.sleep(load.warm_s)
        return group.rate(load.measured_s)
    finally:
        group.stop()


def grown(load: Load, namesrv: str, topic: str, *, backlog: int) -> tuple[int, int, int]:
    """Grow a topic live; messages, those handled before an earlier one of their key, keys hit."""
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=16)
        fill(namesrv, topic, load, backlog)
        group = Group(load, namesrv, topic, "by key", notes=True)
        try:
            time.sleep(load.warm_s / 2)
            if not backlog:
                fill(namesrv, topic, load, load.keys)
                settle(group, load.keys)
            admin.alter_topic(topic, queues=100)
            time.sleep(1.0)  # the next producer sees the new route
            sent = backlog or load.keys
            fill(namesrv, topic, load, 2 * load.keys, sent)
            settle(group, sent + 2 * load.keys)
            entries = sorted(tuple(one) for found in group.ask("seen") for one in found["seen"])
        finally:
            group.stop()
    return (len(entries), *overtaken(entries))


def settle(group: Group, count: int, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while group.count() < count:
        assert time.monotonic() < deadline, f"{count} messages were not handled in {timeout_s} s"
        time.sleep(0.1)


def overtaken(entries: list[tuple[float, str, int]]) -> tuple[int, int]:
    """How many steps ended while an earlier one of their key had not, and of how many keys."""
    steps = defaultdict(list)
    for _, key, step in entries:
        steps[key].append(step)
    late = {
        key: sum(min(own[at:]) < own[at] for at in range(len(own))) for key, own in steps.items()
    }
    return sum(late.values()), sum(1 for count in late.values() if count)


def side_by_side(load: Load, names: str, queues: int) -> list[str]:
    """The three orders over one backlog."""
    topic, lines, concurrent = f"pressure-{queues}", [], 0.0
    with Admin(namesrv=names) as admin:
        admin.create_topic(topic, queues=queues)
    fill(names, topic, load, load.backlog)
    for order in ORDERS:
        rate, most = reached(load, names, topic, order), load.ceiling(order, queues)
        if order == "concurrent":
            concurrent = rate
        line = f"{queues:>6}  {order:<10}  {rate:>8.0f}  {most:>8.0f}  {rate / most:>5.2f}"
        lines.append(line + (f"  {rate / concurrent:>13.2f}" if order == "by key" else ""))
        print(lines[-1], flush=True)
    return lines


def growing(load: Load, names: str) -> list[str]:
    """A topic grown with a backlog in its old queues, and without."""
    lines = ["", "grown live from 16 to 100 queues, by key:"]
    for backlog in (20 * load.keys, 0):
        count, late, keys = grown(load, names, f"grown-{backlog}", backlog=backlog)
        what = f"{backlog} waiting in the old queues" if backlog else "nothing under way"
        lines.append(
            f"  {what}: {late} of {count} handled before an earlier one of their key "
            f"({keys} of {load.keys} keys)"
        )
        print(lines[-1], flush=True)
    return lines


def report(load: Load, only: str, per_second: float) -> list[str]:
    shares = Shares()
    lines = [
        f"{load.consumers} consumers of {load.threads} threads, a handler of "
        f"{HANDLER_S * 1000:.0f} ms, {load.keys} keys ({load.spread}), messages/s over "
        f"{load.measured_s:g} s",
        "",
        f"{'queues':>6}  {'order':<10}  {'reached':>8}  {'ceiling':>8}  {'share':>5}"
        "  of concurrent",
    ]
    with LocalCluster() as cluster:
        if per_second:
            lines[-1:] = [
                f"{per_second:g} messages a second:",
                *paced(load, cluster.namesrv, per_second),
            ]
            return [f"command    {shlex.join(['python', *sys.argv])}", shares.told(), *lines]
        for queues in (16, 100):
            if only in str(queues):
                lines += side_by_side(load, cluster.namesrv, queues)
        if only in "grown":
            lines += growing(load, cluster.namesrv)
    return [f"command    {shlex.join(['python', *sys.argv])}", shares.told(), *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--seconds", type=float, help="how long to warm up, and to measure")
    parser.add_argument("--save", metavar="NAME", default="")
    parser.add_argument("--keys", choices=("turn", "uniform", "zipf"), default="turn")
    parser.add_argument("--paced", metavar="RATE", type=float, default=0.0, help="messages/s")
    parser.add_argument("--member", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.member:
        member(given.member)
        return
    load = QUICK if given.quick else Load()
    if given.seconds:
        load = replace(load, warm_s=given.seconds, measured_s=given.seconds)
    load = replace(load, spread=given.keys)
    lines = report(load, given.only, given.paced)
    print("\n".join(["", *lines]))
    save(given.save, "\n".join(lines))


if __name__ == "__main__":
    main()
