"""A master's store and a slave's on disks of their own, joined by the real replication, in memory.

Everything runs on a loop of virtual time (`run`); stores can crash or lose power, and the slave
comes back by itself.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from cometmq.broker.replication.replica_quorum import ReplicaQuorum
from cometmq.broker.replication.replication_client import ReplicationClient
from cometmq.broker.replication.replication_server import ReplicationServer
from cometmq.settings.broker import BrokerSettings
from cometmq.store.message_store import MessageDraft, MessageStore, PutStatus
from cometmq.testing.memory_store import memory_store
from cometmq.testing.sim_files import SimFiles, SimWorker
from cometmq.testing.sim_loop import LoopClock, SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOG_FILE = 8192
PORT = 10_912
MASTER = {"slave_timeout_ms": 3_000, "in_sync_replicas": 2, "broker_role": "SYNC_MASTER"}
SLAVE = {"broker_role": "SLAVE", "broker_id": 1, "ha_master_address": f"m:{PORT}"}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time, an hour at most."""

    async def bounded() -> None:
        async with asyncio.timeout(3600):
            await scenario

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(bounded())


class Node:
    """A store on a disk of its own, which outlives it."""

    def __init__(self, rng: Random, flush: str, file_bytes: int) -> None:
        self.rng, self.flush, self.file_bytes = rng, flush, file_bytes
        self.disk = SimFiles(rng, LoopClock())
        self.workers: list[SimWorker] = []
        self.store: MessageStore
        self.open()

    def open(self) -> None:
        self.store = memory_store(
            files=self.disk,
            worker=self._worker,
            flush_disk_type=self.flush,
            commit_log_file_bytes=self.file_bytes,
            consume_queue_file_bytes=320,
            max_hash_slot_num=500,
            max_index_num=60,
        )

    def _worker(self, _name: str) -> SimWorker:
        self.workers.append(SimWorker(self.rng))
        return self.workers[-1]

    async def crash(self, *, power_cut: bool) -> None:
        for worker in self.workers:
            worker.is_dead = True
        self.workers.clear()
        self.store._appender._end_batch = lambda: None  # type: ignore[method-assign]
        await asyncio.sleep(0)
        (self.disk.power_cut if power_cut else self.disk.kill)()
        self.open()

    @property
    def log(self) -> bytes:
        """All bytes that a reader may have, from the first on."""
        store, found, at = self.store, b"", self.store.min_phy_offset
        if store.is_log_empty:
            return b""
        while data := store.read_raw(at, 1 << 20):
            found, at = found + data, at + len(data)
        return found


class ReplicaPair:
    """A master and a slave."""

    def __init__(
        self,
        seed: int = 0,
        *,
        flush: str = "ASYNC_FLUSH",
        slave_flush: str | None = None,
        file_bytes: int = LOG_FILE,
        is_waiting: bool = True,
        **settings: Any,
    ) -> None:
        """`is_waiting`: the master's sends wait for the slave; else it is an ASYNC_MASTER."""
        self.rng = Random(seed)
        self.is_waiting = is_waiting
        self.settings = {**MASTER, **settings}
        self.master = Node(self.rng, flush, file_bytes)
        self.slave = Node(self.rng, slave_flush or flush, file_bytes)
        self.server: ReplicationServer
        self.quorum: ReplicaQuorum
        self.client: ReplicationClient
        self._following: asyncio.Task[None] | None = None
        self._number = 0

    async def start_master(self) -> None:
        settings = BrokerSettings(**self.settings)
        store = self.master.store
        self.quorum = ReplicaQuorum(1, settings.slave_timeout_ms / 1000)
        if self.is_waiting:
            store.durability_conditions.add(self.quorum)
        self.server = ReplicationServer(store, settings, self.quorum if self.is_waiting else None)
        await self.server.start("m", PORT)

    async def stop_master(self) -> None:
        await self.server.stop()
        self.quorum.close()

    async def start_slave(self) -> None:
        self.slave.store.is_slave = True
        self.client = ReplicationClient(self.slave.store, BrokerSettings(**SLAVE))
        self._following = asyncio.ensure_future(self.client.run())

    async def stop_slave(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
            self._following = None

    async def start(self) -> None:
        await self.start_master()
        await self.start_slave()

    async def stop(self) -> None:
        await self.stop_slave()
        await self.stop_master()

    def put(self, body: bytes = b"") -> asyncio.Future[PutStatus]:
        """Put a message; what its sender is answered."""
        self._number += 1
        body = body or b"%d:" % self._number + b"x" * self.rng.choice((0, 5, 90, 700, 2_500))
        store = self.master.store
        put = store.put(MessageDraft("T", self.rng.randint(0, 1), body, b"", born_ms=1))
        answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        if put.status is not PutStatus.PUT_OK:
            answer.set_result(put.status)
        else:
            store.on_durable(lambda status: None if answer.done() else answer.set_result(status))
        return answer

    async def until(self, is_true: Callable[[], bool], limit_s: float = 120) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while not is_true():
            assert loop.time() < until_s, "it did not come true"
            await asyncio.sleep(0.01)

    async def caught_up(self) -> None:
        """Wait until the slave has all of the master's log."""
        await self.until(
            lambda: (
                self.slave.store.readable_phy_offset == self.master.store.readable_phy_offset
                and not self.client.problem
            )
        )
