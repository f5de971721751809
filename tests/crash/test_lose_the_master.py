"""Two brokers of one name lose the master, the slave, their link, their disk: none acknowledged is.

Real processes and real clients, which go on through all of it; see `replicated_brokers.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from crash.replicated_brokers import (
    Load,
    OrderedReader,
    ReplicatedBrokers,
    StoredMessages,
    assert_order,
    until,
)
from oracle_runs import record_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPLAY = "pytest -m slow tests/crash/test_lose_the_master.py"
FAULTS = ("master", "slave", "link", "disk")
ROUNDS, ROUNDS_OF_A_PAIR = 100, 20
PROMOTED_WITHIN_S = 30.0


class Rounds:
    """Rounds of faults on one pair; after each one everything acknowledged is looked for."""

    def __init__(self, brokers: ReplicatedBrokers, load: Load, reader: OrderedReader) -> None:
        self.brokers, self.load, self.reader = brokers, load, reader
        self.stored = StoredMessages()
        self.happened: Counter[str] = Counter()

    def run(self, fault: str, load_s: float) -> None:
        self.load.resume()
        self.load.wait_for_more()
        time.sleep(load_s)
        getattr(self, f"lose_{fault}")()
        self.load.wait_for_more()
        self.load.pause()
        self.happened[f"{fault}s lost"] += 1
        self.compare()

    def lose_master(self) -> None:
        brokers = self.brokers
        brokers.master.kill()
        brokers.promote()
        assert brokers.promoted_s[-1] < PROMOTED_WITHIN_S
        brokers.slave.start()

    def lose_slave(self) -> None:
        self.brokers.slave.kill()
        self._nothing_is_acknowledged()
        self.brokers.slave.start()

    def lose_link(self) -> None:
        self.brokers.master.link.cut()
        self._nothing_is_acknowledged()
        self.brokers.master.link.mend()

    def lose_disk(self) -> None:
        node = self.brokers.master if self.happened["disks lost"] % 2 else self.brokers.slave
        filler = node.store.parent / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:  # until there is no room
                file.write(bytes(1 << 16))
        time.sleep(1.0)
        filler.unlink()

    def _nothing_is_acknowledged(self) -> None:
        """No slave has what the master writes: the answers are 12."""
        time.sleep(0.3)  # what the slave had taken is answered
        before = self.load.counts()
        time.sleep(1.0)
        self.happened["acknowledged without a slave"] += (self.load.counts() - before).total()

    def compare(self) -> None:
        """Everything acknowledged is at both, in order; returns once consumers have it, too."""
        brokers, acked = self.brokers, self.load.acked
        brokers.wait_in_sync()
        plain = {body for kind, bodies in acked.items() if kind != "ordered" for body in bodies}

        def missing() -> set[bytes]:
            return plain - self.stored.read(brokers.master.addr)[0]

        until(
            lambda: not missing(), "what was acknowledged is at the master"
        )  # delays, check-backs
        brokers.wait_in_sync()
        found, queues = StoredMessages().read(brokers.slave.addr)
        assert plain <= found, sorted(plain - found)[:5]
        assert_order(queues, acked["ordered"])
        self.happened["messages compared"] = len(plain) + assert_order(
            self.stored.read(brokers.master.addr)[1], acked["ordered"]
        )
        wanted = Counter(int(body.split()[0]) for body in acked["ordered"])
        until(
            lambda: all(
                len(self.reader.firsts().get(b"%d" % key, ())) >= count
                for key, count in wanted.items()
            ),
            "the ordered topic is handled",
        )
        for numbers in self.reader.firsts().values():
            assert numbers == sorted(numbers), (
                "an orderly consumer met a key's messages in disorder"
            )


@contextmanager
def rounds_of(*stores: Path) -> Iterator[Rounds]:
    with ReplicatedBrokers(*stores) as brokers, Load(brokers.namesrv) as load:
        reader = OrderedReader(brokers.namesrv)
        with reader.consumer:
            yield Rounds(brokers, load, reader)


@contextmanager
def file_systems(tmp_path: Path) -> Iterator[list[Path]]:
    """Two stores on file systems of their own, for which one must be root."""
    mount = shutil.which("mount")
    if mount is None or os.getuid() != 0:
        pytest.skip("mounting a tmpfs takes root")
    with ExitStack() as stack:
        places = []
        for name in ("a", "b"):
            place = tmp_path / name
            place.mkdir()
            command = [mount, "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(place)]
            if subprocess.run(command, check=False).returncode:
                pytest.skip("mounting a tmpfs takes root")
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
            places.append(place / "store")
        yield places


def test_nothing_acknowledged_is_lost_with_the_master(tmp_path: Path) -> None:
    with rounds_of(tmp_path / "a", tmp_path / "b") as rounds:
        rounds.run("master", 0.3)
        assert rounds.happened["messages compared"] > 50


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_acknowledged_is_lost_in_rounds_of_faults(tmp_path: Path, fault: str) -> None:
    rng, happened, longest_s = Random(7), Counter[str](), 0.0
    rounds_left = int(os.environ.get("COMETMQ_ROUNDS", ROUNDS))
    while rounds_left:
        part = min(rounds_left, ROUNDS_OF_A_PAIR)
        rounds_left -= part
        place = tmp_path / str(rounds_left)
        place.mkdir()
        with file_systems(place) as stores, rounds_of(*stores) as rounds:
            for _ in range(part):
                rounds.run(fault, rng.choice((0.1, 0.3, 0.6)))
            happened += rounds.happened
            longest_s = max(longest_s, *rounds.brokers.promoted_s, 0.0)
            assert rounds.happened["acknowledged without a slave"] == 0
    if longest_s:
        happened["longest promotion ms"] = int(longest_s * 1000)
    record_run(
        "failover",
        fault,
        replay=REPLAY,
        **{what.replace(" ", "_"): number for what, number in happened.items()},
    )
