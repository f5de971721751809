"""Groups that are slow for one reason or several, on real brokers and with real consumers.

All of it in virtual time: handlers wait, nothing computes, so rates are exact however busy the
machine is. `Scene.why` looks at the group as `cometmq why` does.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from broker.harness import sim_worker
from client.sim_hosts import Host, Network
from cometmq import AsyncAdmin, AsyncPushConsumer, MessageExt
from cometmq.broker.app import Broker
from cometmq.client.consumer import work_report
from cometmq.model.queue import MessageQueue
from cometmq.namesrv.app import NameServer
from cometmq.runtime.worker_jobs import problem_of
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.message_draft import MessageDraft
from cometmq.testing.sim_files import SimFiles
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.rules.diagnosis.bottleneck import Bottleneck
    from cometmq.runtime.clock_and_file_protocols import Worker

TOPIC, GROUP = "orders", "clerks"
WARM_S, LOOK_S = 20.0, 10.0
STORE = StoreSettings(commit_log_file_bytes=1 << 23, max_hash_slot_num=100, max_index_num=400)
HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A group and its load."""

    queues: int = 8
    brokers: int = 1
    members: int = 2
    threads: int = 20
    order: str = "none"
    handler_s: float = 0.2
    slow_s: dict[bytes, float] = field(default_factory=dict)
    """Handlers take so long for messages with these bodies."""
    messages: int = 0
    """How many wait at the start; 0: twice what can be done."""
    each_s: int = 0
    """How many come in a second."""
    disk_s: float = 0.0
    """What waits at the start lies on a disk that takes so long a read; 0: it is in memory."""
    hot_queue: float = 0.0
    """The share of the messages that goes to the first queue."""
    hot_key: float = 0.0
    """The share of the messages that has the same key."""
    body: bytes = b"x"
    tags: tuple[str, ...] = ("A",)
    filters: tuple[str, ...] = ("*",)
    """Of one member after the other."""
    failing: Callable[[MessageExt], Exception | None] = lambda message: None
    options: dict[str, Any] = field(default_factory=dict)
    after: tuple[Callable[[Scene], None], ...] = ()
    """What is done to it once it runs."""
    before: tuple[Callable[[Scene], None], ...] = ()

    def also(self, **changes: Any) -> Shape:
        """The same, but for these."""
        return replace(self, **changes)


class Scene:
    """A running group."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.network = Network()
        self.servers = self.network.host()
        self.brokers: list[tuple[Host, Broker]] = []
        self._disks: list[SimFiles] = []
        self.members: list[tuple[Host, AsyncPushConsumer]] = []
        self.handled = 0
        self._rng = Random(1)
        work_report.process_cpu_s = lambda: 0.0  # all hosts are one process here
        self.network.run(self.servers, self._start_names())
        for number in range(shape.brokers):
            host = self.network.host()
            self.brokers.append((host, self.network.run(host, self._start_broker(number))))
        self.network.run(self.network.host(), self._create())
        for number, (host, broker) in enumerate(self.brokers):
            self.network.run(host, self._fill(broker, number, self._count()))
            if shape.disk_s:
                self.brokers[number] = (host, self.network.run(host, self._forget(broker, number)))
            if shape.each_s:
                host.create_task(self._go_on(self.brokers[number][1], number))
        for action in shape.before:
            action(self)
        for number in range(shape.members):
            self.join(number)
        self.network.pass_time(WARM_S)
        for action in shape.after:
            action(self)

    def _count(self) -> int:
        shape = self.shape
        if shape.messages or shape.each_s:
            return shape.messages // shape.brokers
        at_once = shape.members * shape.threads
        if shape.order == "queue":
            at_once = min(at_once, shape.queues)
        seconds = WARM_S + 3 * LOOK_S
        return int(2 * at_once * seconds / shape.handler_s / shape.brokers) + 200

    async def _start_names(self) -> None:
        names = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
        await names.start()
        self.namesrv = names.address

    async def _start_broker(self, number: int) -> Broker:
        self._disks.append(SimFiles(Random(number), LoopClock()))
        return await self._open_broker(number)

    async def _forget(self, broker: Broker, number: int) -> Broker:
        """The broker anew, with nothing of its files in memory."""
        await broker.stop()
        self._disks[number].is_asleep = True
        return await self._open_broker(number)

    def _worker(self, name: str) -> Worker:
        is_slow = self.shape.disk_s and name == "store-reads"
        return SlowReads(self.shape.disk_s) if is_slow else sim_worker(name)

    async def _open_broker(self, number: int) -> Broker:
        disk = self._disks[number]
        broker = Broker.open(
            BrokerSettings(
                broker_name=f"b{number}", listen_port=0, store_path_root_dir="/store",
                namesrv_addr=self.namesrv,
            ),
            STORE, clock=disk.clock, files=disk, worker=self._worker,
        )  # fmt: skip
        await broker.start()
        return broker

    async def _create(self) -> None:
        async with AsyncAdmin(namesrv=self.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=self.shape.queues)

    async def _fill(self, broker: Broker, number: int, count: int) -> None:
        shape, rng = self.shape, self._rng
        for at in range(count):
            tag = shape.tags[at % len(shape.tags)]
            key = "hot" if rng.random() < shape.hot_key else f"k{rng.randrange(1_000)}"
            queue = 0 if rng.random() < shape.hot_queue else at % shape.queues
            if shape.hot_key and not shape.hot_queue:
                queue = hash_of(key) % shape.queues
            raw = properties.encode({"TAGS": tag, "__SHARDINGKEY": key, "UNIQ_KEY": f"{at}"})
            body = next(iter(shape.slow_s)) if at == 0 and shape.slow_s else shape.body
            draft = MessageDraft(TOPIC, queue, body, raw, born_ms=1, born_host=HOST)
            broker.store.put(draft)
            if at % 200 == 199:
                await asyncio.sleep(0)

    async def _go_on(self, broker: Broker, number: int) -> None:
        while True:
            await self._fill(broker, number, self.shape.each_s // 10)
            await asyncio.sleep(0.1)

    def join(self, number: int) -> None:
        """Start one more member, on a host of its own."""
        shape, host = self.shape, self.network.host()
        consumer = AsyncPushConsumer(
            GROUP, namesrv=self.namesrv, instance_name=f"m{number}", consume_from="first",
            consume_threads=shape.threads, order=shape.order, **shape.options,
        )  # fmt: skip
        consumer.subscribe(TOPIC, shape.filters[number % len(shape.filters)], self._handle)
        self.members.append((host, consumer))
        self.network.run(host, consumer.start())

    async def _handle(self, messages: list[MessageExt]) -> None:
        for message in messages:
            await asyncio.sleep(self.shape.slow_s.get(message.body, self.shape.handler_s))
            if (error := self.shape.failing(message)) is not None:
                raise error
            self.handled += 1

    def why(self) -> Bottleneck:
        """What `cometmq why` finds."""
        return self.network.run(self.network.host(), self._why())

    async def _why(self) -> Bottleneck:
        async with AsyncAdmin(namesrv=self.namesrv) as admin:
            return await admin.why(GROUP, LOOK_S)

    def rate(self) -> float:
        """Messages handled a second, counted by the handlers."""
        before = self.handled
        self.network.pass_time(LOOK_S)
        return (self.handled - before) / LOOK_S

    def close(self) -> None:
        for _, consumer in self.members:
            if consumer._engine is not None:
                consumer._engine._tasks.close()  # what waits for a free slot was never begun
        self.network.close()
        gc.collect()  # tasks and hosts refer to each other; a run of many groups is large


class SlowReads:
    """A thread of the broker that waits for the disk: one read after the other."""

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s
        self._free_at = 0.0

    def submit(self, job: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Do a read once those before it are done."""
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + self._each_s
        loop.call_at(self._free_at, lambda: done(problem_of(job)))

    def close(self) -> None:
        """Nothing is kept."""


def hash_of(key: str) -> int:
    return sum(key.encode())


def why(shape: Shape) -> Bottleneck:
    """Run a group and look at it."""
    scene = Scene(shape)
    try:
        return scene.why()
    finally:
        scene.close()


def rate_of(shape: Shape) -> float:
    """Run a group and count."""
    scene = Scene(shape)
    try:
        return scene.rate()
    finally:
        scene.close()


# ---- what is done to it


def pause_one(scene: Scene) -> None:
    scene.members[0][1].pause()


def kill_a_broker(scene: Scene) -> None:
    host, _ = scene.brokers[-1]
    for port, server in list(scene.network.servers.items()):
        if scene.network.host_of.get(server) is host:
            del scene.network.servers[port]
    for member, _ in scene.members:
        for ours in scene.network.open_connections(member):
            if ours.other._loop is host:
                ours.abort()
    scene.network.kill(host)


def forbid_reads(scene: Scene) -> None:
    async def forbid() -> None:
        async with AsyncAdmin(namesrv=scene.namesrv) as admin:
            await admin.alter_topic(TOPIC, perm="w", may_hide_messages=True)

    scene.network.run(scene.network.host(), forbid())
    scene.network.pass_time(5)


def take_lock(holder: str) -> Callable[[Scene], None]:
    """Let a client have the lock of the first queue, as one of Apache's leaves it behind."""

    def take(scene: Scene) -> None:
        host, broker = scene.brokers[0]
        queues = [MessageQueue(TOPIC, "b0", 0), MessageQueue(TOPIC, "b0", 1)]

        async def lock() -> None:
            broker.state.locks.lock(GROUP, holder, queues)

        scene.network.run(host, lock())

    return take


def refuse_writes(scene: Scene) -> None:
    """Let brokers store nothing any more, as with a full disk; what lies there can be read."""
    for _, broker in scene.brokers:
        broker.store.is_slave = True
