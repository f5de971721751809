"""One broker and members of an orderly group, through pauses, broken connections and kills.

Everything runs in virtual time: the real broker, the real clients, a simulated network. Whatever
happens, no handler begins while another member has the lock of its queue at the broker, nothing is
begun before all that stands before it in the queue was done, and in the end everything was done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from broker.harness import sim_worker
from client.sim_hosts import Host, Network
from cometmq import AsyncAdmin, AsyncProducer, AsyncPushConsumer, Message, MessageExt
from cometmq.broker.app import Broker
from cometmq.model.queue import MessageQueue
from cometmq.namesrv.app import NameServer
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.store import StoreSettings
from cometmq.testing.sim_files import SimFiles
from cometmq.testing.sim_loop import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC, GROUP = "orders", "clerks"
QUEUES, MESSAGES = 2, 24
RENEW_S, VALID_S, EXPIRE_S, REBALANCE_S = 2.0, 3.0, 6.0, 4.0
SMALL = StoreSettings(commit_log_file_bytes=1 << 20, max_hash_slot_num=100, max_index_num=400)


class Cluster:
    """A name server and a broker on one host, and members on others."""

    def __init__(self, handler_s: float) -> None:
        self.network = Network()
        self.handler_s = handler_s
        self.servers = self.network.host()
        self.members: dict[int, tuple[Host, AsyncPushConsumer]] = {}
        self.done: dict[int, set[int]] = defaultdict(set)
        self.wrong: list[str] = []
        self.has_late_commits = False
        """Whether commits may arrive so late that others have gone on from the offset before."""
        self._count = 0
        self.network.run(self.servers, self._start())
        self.network.run(self.network.host(), self.send())

    async def _start(self) -> None:
        names = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
        await names.start()
        self.namesrv = names.address
        disk = SimFiles(Random(1), LoopClock())
        self.broker = Broker.open(
            BrokerSettings(
                broker_name="b0", listen_port=0, store_path_root_dir="/store",
                namesrv_addr=self.namesrv, default_topic_queue_nums=QUEUES,
                queue_lock_expire_ms=int(EXPIRE_S * 1000),
            ),
            SMALL, clock=disk.clock, files=disk, worker=sim_worker,
        )  # fmt: skip
        await self.broker.start()

    async def send(self) -> None:
        """Fill the queues."""
        async with AsyncAdmin(namesrv=self.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
        async with AsyncProducer("senders", namesrv=self.namesrv) as producer:
            for number in range(MESSAGES):
                queue = MessageQueue(TOPIC, "b0", number % QUEUES)
                await producer.send(Message(TOPIC, b"x"), queue=queue)

    def join(self, slot: int) -> None:
        """Start a member, as a new process on a new host."""
        self._count += 1
        name = f"{'zyx'[slot]}{self._count}"
        consumer = AsyncPushConsumer(
            GROUP, namesrv=self.namesrv, orderly=True, instance_name=name,
            consume_from="first", consume_threads=1, rebalance_s=REBALANCE_S, persist_s=1.0,
            lock_renew_s=RENEW_S, lock_valid_s=VALID_S, stop_timeout_s=5.0, heartbeat_s=5.0,
        )  # fmt: skip

        async def handle(messages: list[MessageExt]) -> None:
            await self._handle(name, messages[0])

        consumer.subscribe(TOPIC, "*", handle)
        self.members[slot] = (self.network.host(), consumer)
        self.network.run(self.members[slot][0], consumer.start())

    async def _handle(self, who: str, message: MessageExt) -> None:
        queue = MessageQueue(TOPIC, "b0", message.queue_id)
        holder = self.broker.state.locks.holder(GROUP, queue)
        if holder is None or not holder.client_id.endswith(f"@{who}"):
            self.wrong.append(f"{who} begins {message} while the lock is {holder}")
        missing = set(range(message.queue_offset)) - self.done[message.queue_id]
        if missing:
            self.wrong.append(f"{who} begins {message} before {missing}")
        committed = self.broker.state.offsets.committed(GROUP, TOPIC, message.queue_id)
        if message.queue_offset < committed and not self.has_late_commits:
            self.wrong.append(f"{who} begins {message}, but {committed} is committed")
        await asyncio.sleep(self.handler_s)
        self.done[message.queue_id].add(message.queue_offset)

    def act(self, what: str, slot: int, seconds: float) -> None:
        """Do something to a member, or to the broker's side of its connections."""
        if slot not in self.members:
            self.join(slot)
        else:
            host, _ = self.members[slot]
            if not host.is_paused or what not in SEEN_BY_THE_MEMBER:
                ACTIONS[what](self, slot, host, seconds)

    def pause(self, _slot: int, host: Host, seconds: float) -> None:
        host.is_paused = self.has_late_commits = True
        self.network.later(seconds, partial(setattr, host, "is_paused", False))

    def stall(self, _slot: int, host: Host, seconds: float) -> None:
        self.has_late_commits = True
        for ours in self.network.open_connections(host):
            for end in (ours, ours.other):
                end.pause_reading()
                self.network.later(seconds, end.resume_reading)

    def close_at_broker(self, _slot: int, host: Host, _seconds: float) -> None:
        for ours in self.network.open_connections(host):
            ours.other.abort()

    def reset(self, _slot: int, host: Host, _seconds: float) -> None:
        for ours in self.network.open_connections(host):
            ours.abort()

    def kill(self, slot: int, host: Host, _seconds: float) -> None:
        del self.members[slot]
        self.network.kill(host)

    def stop(self, slot: int, host: Host, _seconds: float) -> None:
        _, consumer = self.members.pop(slot)
        host.create_task(consumer.stop())

    def end_trouble(self) -> None:
        """Let the members finish undisturbed."""
        for host, _ in self.members.values():
            host.is_paused = False
        for slot in range(2):
            if slot not in self.members:
                self.join(slot)
        each = set(range(MESSAGES // QUEUES))
        self.network.run_until(lambda: all(self.done[n] == each for n in range(QUEUES)), 300)
        for host, consumer in self.members.values():
            self.network.run(host, consumer.stop())


ACTIONS: dict[str, Callable[[Cluster, int, Host, float], None]] = {
    "pause": Cluster.pause,
    "stall": Cluster.stall,
    "close at broker": Cluster.close_at_broker,
    "reset": Cluster.reset,
    "kill": Cluster.kill,
    "stop": Cluster.stop,
}
SEEN_BY_THE_MEMBER = ("reset", "kill", "stop")
"""A connection that is reset while its process stands still is beyond what a client can know."""
COURSES = st.lists(
    st.tuples(
        st.sampled_from(sorted(ACTIONS)),
        st.integers(0, 2),
        st.sampled_from([0.2, 1.0, 2.5, 4.0, 8.0]),
        st.sampled_from([0.0, 0.05, 0.7, 3.0, 7.0]),
    ),
    max_size=10,
)
FAST, SLOW, SLOWER = 0.05, 0.9, 2.7


@settings(max_examples=15, derandomize=True, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.sampled_from([FAST, SLOW, SLOWER]), COURSES)
@example(SLOW, [("pause", 0, 8.0, 9.0)])
@example(SLOW, [("stall", 0, 8.0, 9.0)])
@example(SLOW, [("stall", 0, 2.5, 0.0), ("close at broker", 0, 0.0, 3.0)])
@example(SLOW, [("stall", 0, 4.0, 0.0), ("reset", 0, 0.0, 5.0)])
@example(SLOWER, [("kill", 1, 0.0, 4.0), ("stall", 0, 8.0, 9.0)])
@example(SLOWER, [("stop", 0, 0.0, 0.0), ("kill", 1, 0.0, 0.0), ("stop", 2, 0.0, 0.0)])
def test_no_handler_begins_while_another_member_has_the_lock(handler_s, course):
    cluster = Cluster(handler_s)
    try:
        cluster.join(0)
        cluster.join(1)
        cluster.network.pass_time(2.0)
        for what, slot, seconds, gap_s in course:
            cluster.act(what, slot, seconds)
            cluster.network.pass_time(gap_s)
        cluster.end_trouble()
        assert not cluster.wrong
    finally:
        cluster.network.close()
