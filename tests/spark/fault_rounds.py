"""Rounds of faults under a streaming query on a cluster of Spark that reads two brokers.

A round has each fault once, in an order that follows from its seed. Before and after each of them
messages are sent; the table that the query keeps has each of them once before the next one comes.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pyarrow as pa
from pyarrow import parquet

from client.short_delay_cluster import until
from spark.standalone import kill_living
from spark.streams import texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark.live import TwoBrokers
    from spark.standalone import Driver, StandaloneCluster

PROGRAM = Path(__file__).with_name("cluster_stream.py")
MOST_S = 300
"""A query is started again and has read everything after this time, on a busy machine."""


class FaultRounds:
    """One topic on two brokers, one query, and what becomes of them."""

    def __init__(
        self, cluster: StandaloneCluster, two: TwoBrokers, topic: str, place: Path, seed: int
    ) -> None:
        self._cluster, self._two, self._topic, self._place = cluster, two, topic, place
        self._dice = random.Random(seed)
        self._queues, self.sent = 1, 0
        self.happened: Counter[str] = Counter()
        self._driver: Driver | None = None
        self._read: dict[Path, list[int]] = {}
        self.faults: dict[str, Callable[[], object]] = {
            "executor": lambda: cluster.kill_executor(self._dice.randrange(2)),
            "python worker": self._kill_python_worker,
            "worker": self._kill_worker,
            "planner": self._kill_planner,
            "driver": self._kill_driver,
            "broker": self._kill_broker,
            "growth": self._grow,
        }

    def __enter__(self) -> Self:
        try:
            self._send()
            self._wait_until_read("the start")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.kill()

    def run_round(self) -> None:
        """Each fault once; fails when the table is not exact after one of them."""
        for fault in self._dice.sample(sorted(self.faults), len(self.faults)):
            self._send()
            time.sleep(self._dice.uniform(0, 1.5))
            self.faults[fault]()
            self._send()
            self._wait_until_read(fault)
            self.happened[fault] += 1

    def _wait_until_read(self, fault: str) -> None:
        end_s = time.monotonic() + MOST_S
        while (numbers := self.numbers()) != list(range(self.sent)):
            assert len(set(numbers)) == len(numbers), f"{fault}: read twice"
            assert time.monotonic() < end_s, f"{fault}: {len(numbers)} of {self.sent} were read"
            if self._driver is None or not self._driver.is_running:
                self._restart()
            time.sleep(0.2)

    def _restart(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self.happened["restarts"] += 1
        arguments = (self._two.namesrv, self._topic, self._place)
        self._driver = self._cluster.submit(PROGRAM, *arguments)

    def numbers(self) -> list[int]:
        """The rows of all batches whose files are complete, sorted."""
        table = self._place / "table"
        found: list[int] = []
        for batch in table.glob("batch=*/_SUCCESS"):
            try:
                files = [self._numbers_of(file) for file in batch.parent.glob("part-*.parquet")]
            except (FileNotFoundError, pa.ArrowInvalid):  # the batch is being replayed
                continue
            found += [number for one in files for number in one]
        return sorted(found)

    def _numbers_of(self, file: Path) -> list[int]:
        """Its rows, read once: a batch that is replayed has files of other names."""
        if file not in self._read:
            self._read[file] = parquet.read_table(file)["number"].to_pylist()
        return self._read[file]

    def _send(self, *, to_second: bool = True) -> None:
        two, first = self._two, self._two.broker
        second = [two.second.facts["broker"]] if to_second else []
        for address in [first, *second]:
            two.broker = address
            for queue_id in range(self._queues):
                count = self._dice.randrange(1, 60)
                two.send(self._topic, queue_id, texts(self.sent, self.sent + count))
                self.sent += count
        two.broker = first

    def _kill_python_worker(self) -> None:
        def is_killed() -> bool:
            found = self._python_workers()
            return bool(found) and kill_living([self._dice.choice(found)])

        until(is_killed, MOST_S)

    def _python_workers(self) -> list[psutil.Process]:
        """What the daemons of the executors have forked, and what is not gone meanwhile."""
        with suppress(psutil.NoSuchProcess):
            below = [
                each
                for worker in self._cluster.workers
                for executor in worker.executors()
                for each in executor.children(recursive=True)
            ]
            pids = {each.pid for each in below}
            return [each for each in below if each.ppid() in pids]
        return []

    def _kill_worker(self) -> None:
        number = self._dice.randrange(2)
        self._cluster.kill_worker(number)
        self._send()
        self._cluster.restore_workers()

    def _kill_planner(self) -> None:
        driver = self._driver
        assert driver is not None
        until(lambda: kill_living(driver.processes("python_streaming_source_runner")), MOST_S)

    def _kill_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()

    def _kill_broker(self) -> None:
        self._two.kill_second()
        self._send(to_second=False)
        self._two.start_second()

    def _grow(self) -> None:
        self._queues += 1
        self._two.grow_topic(self._topic, self._queues)
