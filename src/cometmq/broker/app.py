"""Puts a broker together, starts it and stops it.

The only file of the room that makes objects of other rooms. Start order is one list, the stop
goes through it backwards. Java: BrokerController, BrokerStartup.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

from cometmq.broker import table as codes
from cometmq.broker.admin.connections import ConnectionRequests
from cometmq.broker.admin.groups import GroupRequests
from cometmq.broker.admin.progress import ProgressRequests
from cometmq.broker.admin.topics import TopicRequests
from cometmq.broker.clients import Clients
from cometmq.broker.dead_letters import DeadLetters
from cometmq.broker.delay import Delays
from cometmq.broker.groups import Groups
from cometmq.broker.heartbeat import HeartbeatHandler
from cometmq.broker.holds import Holds
from cometmq.broker.locks import QueueLocks
from cometmq.broker.offsets import Offsets
from cometmq.broker.order import LockHandler
from cometmq.broker.outbound import Announced, Outbound
from cometmq.broker.outcome import CODE_OF_PUT, REMARK_OF_PUT
from cometmq.broker.positions import PositionHandler
from cometmq.broker.pull import PullHandler
from cometmq.broker.retry import SendBackHandler
from cometmq.broker.send import SendHandler
from cometmq.broker.send_fast import FastSend
from cometmq.broker.stats import SAMPLE_S, Stats
from cometmq.broker.tag_codes import TagCodes
from cometmq.broker.topics import Topics, system_topics
from cometmq.broker.view import ViewHandler
from cometmq.errors import SettingsError
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.net.edge import Edge
from cometmq.net.pool import ChannelPool
from cometmq.net.server import RemotingServer
from cometmq.rules.delay import DelayLevels
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.json_file import JsonFile
from cometmq.store.message_store import MessageStore
from cometmq.store.results import PutStatus
from cometmq.wire.bodies.topic import TopicTable
from cometmq.wire.msg_id import UniqKeys
from cometmq.world.background import Background
from cometmq.world.system import SystemClock, SystemFiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.model.topic import TopicConfig
    from cometmq.net.edge import Handler
    from cometmq.world.ports import Clock, Files

    Step = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]

HOUSEKEEPING_S = 10
"""Time between looks for clients that fell silent, seconds."""


class Broker:
    """A broker. Belongs to the loop that starts it; `open` makes it."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        net: NetSettings,
        clock: Clock,
        files: Files,
    ) -> None:
        root = Path(settings.store_path_root_dir).expanduser()
        now_ms, levels = clock.now_ms, DelayLevels.parse(settings.message_delay_level)
        host = _packed(settings.broker_ip1 or settings.bind_address, settings.listen_port)
        self.settings = settings
        self.store = store = MessageStore.open(
            root,
            store_settings,
            clock=clock,
            files=files,
            tags_code=TagCodes(levels),
            store_host=host,
        )

        def json_file(name: str) -> JsonFile:
            return JsonFile(root / "config" / name, files)

        self.topics = topics = Topics(
            json_file("topics.json"),
            now_ms,
            _system_topics(settings, levels),
            auto_create=settings.auto_create_topic_enable,
        )
        self.groups = groups = Groups(
            json_file("subscriptionGroup.json"),
            now_ms,
            auto_create=settings.auto_create_subscription_group,
        )
        self.offsets = offsets = Offsets(json_file("consumerOffset.json"), now_ms)
        self.delays = delays = Delays(store, levels, json_file("delayOffset.json"), now_ms)
        self.clients = clients = Clients(now_ms, settings.channel_expired_timeout_ms)
        self.locks = locks = QueueLocks(now_ms, settings.queue_lock_expire_ms)
        self.holds = holds = Holds(settings.parked_pulls_max)
        self.stats = stats = Stats(now_ms)
        dead_letters = DeadLetters(
            store, topics, stats, deduplicate=settings.dead_letter_deduplicate
        )
        keys = UniqKeys(host[:-4], os.getpid(), id(self))
        self._send = SendHandler(
            store, topics, groups, locks, delays, dead_letters, stats, settings,
            lambda: keys.take(now_ms()), host,
        )  # fmt: skip
        table = codes.table(
            send=self._send,
            pull=PullHandler(store, topics, groups, clients, offsets, holds, stats, settings),
            positions=PositionHandler(store, topics, groups, offsets),
            heartbeat=HeartbeatHandler(clients, topics, groups, settings),
            order=LockHandler(locks),
            send_back=SendBackHandler(
                store, topics, groups, delays, dead_letters, stats, settings, now_ms
            ),
            view=ViewHandler(store),
            admin=self._admin(),
        )
        self._pool = ChannelPool()
        self._outbound = Outbound(
            self._pool, settings, settings.namesrv_addrs, self._registered_topics
        )
        for code in codes.TOPIC_MAKERS:
            table[code] = Announced(table[code], topics, self._outbound)
        self._edge = Edge(
            table,
            settle=partial(_settle, store),
            failed=_why_not,
            fallback=codes.unsupported,
            fast=FastSend(store, topics, self._send, stats, settings),
        )
        self._server = RemotingServer(self._edge, net)
        topics.on_change += [self._outbound.changed, holds.wake_topic]
        store.on_arrival = self._arrived
        self._background = Background("broker")
        self._started: list[Step] = []
        self.port = 0

    @classmethod
    def open(
        cls,
        settings: BrokerSettings | None = None,
        store: StoreSettings | None = None,
        net: NetSettings | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> Broker:
        """Make a broker that does not listen yet; its store is open, locked and recovered.

        Raises SettingsError, StoreLocked, NotAStore or StoreCorrupt.
        """
        broker = cls(
            settings or BrokerSettings(),
            store or StoreSettings(),
            net or NetSettings(),
            clock or SystemClock(),
            files or SystemFiles(),
        )
        gc.collect()
        gc.freeze()  # nothing read at the start is garbage later
        return broker

    @property
    def address(self) -> str:
        """Where clients reach the broker, "host:port"."""
        host = self.settings.broker_ip1 or self.settings.bind_address
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    async def start(self) -> None:
        """Start all parts in order; what had started is stopped again when one of them fails."""
        steps: list[Step] = [
            (self.store.start, self.store.stop),
            (self._start_background, self._stop_background),
            (self._listen, self._stop_listening),
            (self._register, self._unregister),
        ]
        try:
            for step in steps:
                self._started.append(step)
                await step[0]()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all parts, the last one started first. A second call does nothing."""
        while self._started:
            await self._started.pop()[1]()

    async def _listen(self) -> None:
        settings = self.settings
        self.port = await self._server.start(settings.bind_address, settings.listen_port)
        host = _packed(settings.broker_ip1 or settings.bind_address, self.port)
        self.store.move_to(host)
        self._send.store_host = host
        self._outbound.announce(self.address)

    async def _stop_listening(self) -> None:
        self.holds.close()
        self._edge.stop()
        await self._server.stop()

    async def _start_background(self) -> None:
        settings, every = self.settings, self._background.every
        self._background.spawn(self.delays.run(), name="delivery of delayed messages")
        offsets_s = settings.flush_consumer_offset_interval_ms / 1000
        every(offsets_s, self.offsets.save_aside, name="consumer offsets")
        every(
            settings.flush_delay_offset_interval_ms / 1000, self.delays.save, name="delay offsets"
        )
        every(HOUSEKEEPING_S, self._close_silent_clients, name="housekeeping of clients")
        every(SAMPLE_S, self.stats.sample, name="statistics")

    async def _stop_background(self) -> None:
        await self._background.stop()
        self.delays.save()
        safe = asyncio.get_running_loop().create_future()
        self.store.settle(safe.set_result)
        await safe
        self.offsets.save()

    async def _register(self) -> None:
        if self.settings.namesrv_addrs:
            await self._outbound.register()
            self._background.spawn(self._outbound.run(), name="registration")

    async def _unregister(self) -> None:
        if self.settings.namesrv_addrs:
            await self._outbound.unregister()
        await self._pool.close()

    def _admin(self) -> dict[int, Handler]:
        store, topics, groups = self.store, self.topics, self.groups
        clients, offsets, holds, stats = self.clients, self.offsets, self.holds, self.stats
        name = self.settings.broker_name
        return {
            **TopicRequests(topics, offsets, store, lambda: self.address).table(),
            **GroupRequests(groups, offsets).table(),
            **ProgressRequests(store, topics, groups, clients, offsets, holds, stats, name).table(),
            **ConnectionRequests(clients, store).table(),
        }

    def _registered_topics(self) -> TopicTable:
        return TopicTable(self.topics.version, self.topics.table)

    def _arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        if topic == SCHEDULE_TOPIC:
            self.delays.arrived()
        self.holds.arrived(topic, queue_id, max_offset, tags_code)

    def _close_silent_clients(self) -> None:
        for peer in self.clients.sweep():
            peer.close()


def _settle(store: MessageStore, done: Callable[[Any], None]) -> None:
    store.settle(lambda status: done(None if status is PutStatus.PUT_OK else status))


def _why_not(status: PutStatus) -> tuple[int, str]:
    return CODE_OF_PUT[status], REMARK_OF_PUT[status]


def _system_topics(settings: BrokerSettings, levels: DelayLevels) -> list[TopicConfig]:
    return system_topics(
        cluster=settings.broker_cluster_name,
        broker_name=settings.broker_name,
        levels=levels.max_level,
        auto_create=settings.auto_create_topic_enable,
        default_queue_nums=settings.default_topic_queue_nums,
        cluster_topic=settings.cluster_topic_enable,
        broker_topic=settings.broker_topic_enable,
        trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else None,
    )


def _packed(host: str, port: int) -> bytes:
    """The address as records carry it: IP, then the port as int32."""
    try:
        ip = ip_address(host.strip("[]"))
    except ValueError:
        try:
            ip = ip_address(socket.gethostbyname(host))
        except OSError as error:
            raise SettingsError(
                f"brokerIP1 {host!r} is no address of this network: {error.strerror or error}"
            ) from error
    return ip.packed + pack(">i", port)
