"""Everything at once against one cluster: all kinds of sends, groups, a hostile client, kills.

    PYTHONPATH=src:tests python -m soak.everything --seconds 3600 [--seed 7] [--flush SYNC_FLUSH]

Prints what happened as JSON and fails on a message that was lost, handled out of order or early, on
a rolled back transaction that was seen, on damage to the store and on a traceback of the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from broker import hostile_clients
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from soak import consumer_process
from soak.senders import DELAY_S, DELAYED, KEYS, ORDERED, PAID, TOPICS, Senders

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUES, MEMBERS_MAX = 8, 3
DRAIN_S = 120.0
PAUSE_S, LONG_PAUSE_S, LONG_S = 0.005, 0.05, 300.0
"""Seconds between two sends of one kind or key; longer in runs of LONG_S, kept in memory whole."""

GROUPS: dict[str, tuple[str, list[str], float]] = {
    "concurrent": ("none", [topic for topic in TOPICS if topic != ORDERED], 0.01),
    "orderly": ("queue", [ORDERED], 0.01),
    "passing": ("none", [TOPICS[0]], 0.0),
}
"""Of each group: its order, its topics, and the share of its calls that fail."""
LASTING = ("concurrent", "orderly")
"""The groups that must handle everything; a passing one leaves in the middle."""

Line = tuple[float, str, str]


class Member:
    """One consumer process."""

    def __init__(self, root: Path, namesrv: str, group: str, number: int, name: str = "") -> None:
        order, topics, fails = GROUPS[group]
        self.group = group
        self._seen = root / f"{group}-{number}.seen"
        self._looked_at = 0
        self.seen: list[Line] = []
        self._errors = root / f"{group}-{number}.stderr"
        settings = {
            "namesrv": namesrv,
            "group": name or group,
            "topics": topics,
            "order": order,
            "fails": fails,
            "seen": str(self._seen),
        }
        with self._errors.open("wb") as errors:
            command = [sys.executable, consumer_process.__file__, json.dumps(settings)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self.errors

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def look(self) -> list[Line]:
        """What it has handled since the last look; `seen` has all of it."""
        if not self._seen.exists():
            return []
        with self._seen.open("rb") as file:
            file.seek(self._looked_at)
            whole = file.read().rpartition(b"\n")[0]
        self._looked_at += len(whole) + bool(whole)
        new: list[Line] = [tuple(json.loads(line)) for line in whole.splitlines()]
        self.seen += new
        return new


class Soak:
    """One run; `report` counts what happened, so that a run in which nothing did is noticed."""

    def __init__(self, root: Path, seed: int, flush: str) -> None:
        self.report: Counter[str] = Counter()
        self._root, self._dice = root, Random(seed)
        self._members: list[Member] = []
        self._alive: dict[str, list[Member]] = defaultdict(list)
        self._cluster = LocalCluster(
            root / "store",
            apart=True,
            flush_disk_type=flush,
            commit_log_file_bytes=4 << 20,
            queue_lock_expire_ms=3_000,
            message_delay_level=" ".join([f"{DELAY_S}s"] * 18),
            transaction_timeout_ms=2_000,
            transaction_check_interval_ms=1_000,
            transaction_check_max=1_000,
        )
        self._broker_errors = ""

    async def run(self, seconds: float) -> None:
        """Do it for `seconds`, then wait until all is handled, and judge."""
        with self._cluster:
            self._make_topics()
            senders = Senders(self._cluster.namesrv, PAUSE_S if seconds < LONG_S else LONG_PAUSE_S)
            sending = asyncio.create_task(senders.run())
            try:
                await self._disturb(time.monotonic() + seconds, sending)
                await senders.stop()
                self._join_missing()
                await self._drain(senders)
                senders.leave()
                await sending
            finally:
                sending.cancel()
                for member in [one for group in self._alive.values() for one in group]:
                    member.kill()
                self._broker_errors += self._cluster.stderr
        self._judge(senders)

    def _make_topics(self) -> None:
        with Admin(namesrv=self._cluster.namesrv) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, queues=QUEUES)

    async def _disturb(self, end: float, sending: asyncio.Task[None]) -> None:
        steps: list[Callable[[], None]] = [
            *([self._join] * 4),
            self._leave,
            self._die,
            self._pass_by,
            self._kill_the_broker,
        ]
        self._join_missing()
        hostile = self._attack()
        while time.monotonic() < end:
            assert not sending.done(), sending.result()
            await asyncio.sleep(self._dice.uniform(0.3, 2.0))
            await asyncio.to_thread(self._dice.choice(steps))
            if hostile.poll() is not None:
                hostile = self._attack()
        hostile.kill()
        hostile.communicate()

    def _attack(self) -> subprocess.Popen[bytes]:
        mode = self._dice.choice([mode for mode in hostile_clients.MODES if mode != "calm"])
        self.report["attacks"] += 1
        port = self._cluster.broker.rpartition(":")[2]
        command = [sys.executable, hostile_clients.__file__, mode, port, "3"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _start(self, group: str, name: str = "") -> Member:
        member = Member(self._root, self._cluster.namesrv, group, len(self._members), name)
        self._members.append(member)
        self._alive[group].append(member)
        self.report["members"] += 1
        return member

    def _join_missing(self) -> None:
        for group in LASTING:
            if not self._alive[group]:
                self._start(group)

    def _join(self) -> None:
        group = self._dice.choice(LASTING)
        if len(self._alive[group]) < MEMBERS_MAX:
            self._start(group)

    def _take(self) -> Member | None:
        some = [members for members in self._alive.values() if members]
        if not some:
            return None
        members = self._dice.choice(some)
        return members.pop(self._dice.randrange(len(members)))

    def _leave(self) -> None:
        if member := self._take():
            member.stop()
            self.report["clean stops of members"] += 1

    def _die(self) -> None:
        if member := self._take():
            member.kill()
            self.report["kills of members"] += 1

    def _pass_by(self) -> None:
        for member in self._alive.pop("passing", []):
            member.stop()
        self._start("passing", f"passing-{len(self._members)}")
        self.report["groups that came and went"] += 1

    def _kill_the_broker(self) -> None:
        self._broker_errors += self._cluster.stderr
        self._cluster.kill()
        self._cluster.restart()
        self.report["kills of the broker"] += 1

    async def _drain(self, senders: Senders) -> None:
        missing = {(topic, body) for topic, some in senders.acked.items() for body in some}
        wanted, deadline = len(missing), time.monotonic() + DRAIN_S
        while True:
            for member in self._members:
                if member.group in LASTING:
                    missing.difference_update((topic, body) for _, topic, body in member.look())
            if not missing:
                self.report["messages handled"] = wanted
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(missing)} of {wanted} lost: {sorted(missing)[:20]}")
            await asyncio.sleep(0.5)

    def _lines(self, group: str) -> list[Line]:
        members = [one for one in self._members if one.group == group]
        for one in members:
            one.look()
        return sorted(line for one in members for line in one.seen)

    def _judge(self, senders: Senders) -> None:
        handled = self._lines("concurrent")
        self.report["failed sends"] = senders.failures
        self.report["rolled back"] = len(senders.rolled_back)
        self.report["repeats"] = len(handled) - len({line[1:] for line in handled})
        wrong = {body for _, topic, body in handled if topic == PAID} & senders.rolled_back
        assert not wrong, f"rolled back and yet handled: {sorted(wrong)[:20]}"
        for at, topic, body in handled:
            if topic == DELAYED:
                early_s = senders.sent_at[body] + DELAY_S - at
                assert early_s < 0.002, f"{body} came {early_s} s early"
        self._judge_order()
        assert "Traceback" not in self._broker_errors, self._broker_errors
        for member in self._members:
            assert "Traceback" not in member.errors, member.errors
        command = [sys.executable, "-m", "cometmq.cli.main", "store", "verify"]
        verify = subprocess.run(
            [*command, str(self._root / "store")], capture_output=True, text=True, check=False
        )
        assert verify.returncode == 0, verify.stdout + verify.stderr

    def _judge_order(self) -> None:
        last = dict.fromkeys(range(KEYS), -1)
        for _, _, body in self._lines("orderly"):
            key, step = map(int, body.split())
            assert step <= last[key] + 1, f"key {key}: step {step} after {last[key]}"
            last[key] = max(last[key], step)
        self.report["ordered steps"] = sum(last.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--flush", default="ASYNC_FLUSH")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        soak = Soak(Path(root), given.seed, given.flush)
        facts: dict[str, Any] = {"seed": given.seed, "flush": given.flush, "seconds": given.seconds}
        with suppress(BrokenPipeError):
            try:
                asyncio.run(soak.run(given.seconds))
            finally:
                sys.stdout.write(json.dumps(facts | dict(soak.report)) + "\n")


if __name__ == "__main__":
    main()
