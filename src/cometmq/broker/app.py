"""Puts a broker together, starts it and stops it.

The only file of the room that makes objects of other rooms. Start order is one list, the stop
goes through it backwards. Java: BrokerController, BrokerStartup.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from struct import pack
from typing import TYPE_CHECKING, Any

from cometmq.broker.admin.connections import ConnectionRequests
from cometmq.broker.admin.groups import GroupRequests
from cometmq.broker.admin.offset_resets import MoveRequests
from cometmq.broker.admin.progress import ProgressRequests
from cometmq.broker.admin.runtime import RuntimeRequests
from cometmq.broker.admin.statistics import StatisticsRequests
from cometmq.broker.admin.topics import TopicRequests
from cometmq.broker.cluster.live_settings import LiveSettings
from cometmq.broker.cluster.registration import Announced, Outbound
from cometmq.broker.cluster.topics import Topics, end_deletions, system_topics
from cometmq.broker.delivery.check_back import CheckBack
from cometmq.broker.delivery.dead_letters import DeadLetterQueues
from cometmq.broker.delivery.delayed_messages import DelayedMessages
from cometmq.broker.delivery.reply import ReplyHandler
from cometmq.broker.delivery.send_back import SendBackHandler
from cometmq.broker.delivery.transactions import Transactions
from cometmq.broker.groups.client_registry import ClientRegistry
from cometmq.broker.groups.consumer_groups import ConsumerGroups
from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
from cometmq.broker.groups.heartbeat import HeartbeatHandler
from cometmq.broker.groups.lock_requests import QueueLockHandler
from cometmq.broker.groups.offset_requests import OffsetRequestHandler
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.messages.consumer_filters import ConsumerFilters
from cometmq.broker.messages.held_requests import HeldRequests
from cometmq.broker.messages.message_lookup import MessageLookupHandler
from cometmq.broker.messages.pull import PullHandler
from cometmq.broker.messages.send import SendHandler
from cometmq.broker.messages.send_fast_path import FastSend
from cometmq.broker.messages.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.broker.messages.tag_codes import TagCodes
from cometmq.broker.requests import request_table as codes
from cometmq.broker.requests.cold_read_handler import Patient
from cometmq.broker.stats import SAMPLE_S, Stats
from cometmq.errors import SettingsError
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.net.channel_pool import ChannelPool
from cometmq.net.dispatcher import Edge
from cometmq.net.server import RemotingServer
from cometmq.rules import bloom_filter, permission
from cometmq.rules.delay_levels import DelayLevels
from cometmq.runtime.background import Background
from cometmq.runtime.system import SystemClock, SystemFiles, ThreadWorker, at_home, ram_bytes
from cometmq.runtime.text_file import TextFile
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.json_file import JsonFile
from cometmq.store.message_store import MessageStore
from cometmq.store.results import PutStatus
from cometmq.wire.bodies.topic import TopicTable
from cometmq.wire.message_id import UniqKeyGenerator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cometmq.broker.messages.send_fast_path import Sender
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.net.dispatcher import Handler
    from cometmq.runtime.ports import Clock, Files, Worker

    Step = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]

FILTERS_S = 10
"""Time between writes of consumerFilter.json, seconds."""

HOUSEKEEPING_S = 10
"""Time between looks for clients that fell silent, seconds."""

VIP_BELOW = 2
"""Clients with `vipChannelEnabled` take this off the port: RocketMQ's dashboard, old clients."""


class State:
    """All that the broker remembers, each piece with one owner. Read from disk when it is made."""

    def __init__(
        self,
        store: MessageStore,
        levels: DelayLevels,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        world: World,
    ) -> None:
        now_ms, file = world.clock.now_ms, world.config_file
        self.topics = Topics(
            file("topics.json"),
            now_ms,
            _system_topics(settings, levels),
            auto_create=settings.auto_create_topic_enable,
        )
        self.groups = ConsumerGroups(
            file("subscriptionGroup.json"),
            now_ms,
            auto_create=settings.auto_create_subscription_group,
        )
        end_deletions(store, self.topics)
        self.offsets = ConsumerOffsets(file("consumerOffset.json"), now_ms)
        self.offsets.keep_only(self.topics.table)
        self.delayed_messages = DelayedMessages(store, levels, file("delayOffset.json"), now_ms)
        self.clients = ClientRegistry(now_ms, settings.channel_expired_timeout_ms)
        self.locks = QueueLocks(now_ms, settings.queue_lock_expire_ms)
        self.filters = ConsumerFilters(
            file("consumerFilter.json"),
            now_ms,
            keep_ms=settings.filter_data_clean_time_span_ms,
            bloom_shape=bloom_filter.shape(
                settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter
            ),
        )
        self.held_requests = HeldRequests(settings.parked_pulls_max)
        self.stats = Stats(
            now_ms,
            world.clock.local_hour,
            self.topics.is_system,
            settings.broker_cluster_name,
        )
        self.delayed_messages.on_delivered = self.stats.delivered
        self.dead_letters = DeadLetterQueues(
            store, self.topics, self.stats, deduplicate=settings.dead_letter_deduplicate
        )
        self.transactions = Transactions(store, self.delayed_messages, self.stats, settings, now_ms)
        self.check_back = CheckBack(
            store,
            self.topics,
            self.offsets,
            self.clients,
            self.transactions,
            settings,
            store_settings,
            now_ms,
        )


class World:
    """The clock, the files, and where the broker keeps its tables."""

    def __init__(self, clock: Clock, files: Files, root: Path) -> None:
        self.clock, self.files, self.root = clock, files, root

    def config_file(self, name: str) -> JsonFile:
        """One table under config/."""
        return JsonFile(self.root / "config" / name, self.files)


class Broker:
    """A broker. Belongs to the loop that starts it; `open` makes it."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        store_settings: StoreSettings,
        state: State,
        net: NetSettings,
        world: World,
        conf: TextFile | None,
    ) -> None:
        self.settings, self.store, self.state = settings, store, state
        self.port = 0
        """The port listened on, once started."""
        self._pool = ChannelPool()
        self._outbound = Outbound(
            self._pool, settings, settings.namesrv_addrs, self._registered_topics
        )
        now_ms, host = world.clock.now_ms, _packed(_told_host(settings), settings.listen_port)
        keys = UniqKeyGenerator(host[:-4], os.getpid(), id(self))
        self._outbound.on_order_topics = state.topics.mark_ordered
        self._send = SendHandler(
            *(store, state.topics, state.groups, state.locks, state.delayed_messages),
            state.dead_letters,
            state.transactions,
            state.stats,
            settings,
            lambda: keys.next_key(now_ms()),
            host,
        )
        self._pull = self._pull_handler(now_ms)
        fast = FastSend(store, state.topics, self._send, self._pull, state.stats, settings)
        live = LiveSettings(settings, store_settings, net, conf, now_ms)
        live.on_broker += [self._send.adjust, fast.adjust, self._outbound.adjust, self._adjust]
        live.on_store += [store.adjust, state.check_back.adjust_store]
        self._live = live
        table = self._table(now_ms, store_settings)
        table.update(
            RuntimeRequests(
                store, state.delayed_messages, state.stats, world.root, world.files, now_ms
            ).table()
        )
        table.update(live.table())
        settle = partial(_settle, store)
        tables, aside = (state.topics, state.groups), store.aside
        for code in codes.MAKERS:
            table[code] = Announced(table[code], *tables, aside, self._outbound, settle, _why_not)
        table.update({code: Patient(table[code], aside) for code in codes.READERS})
        self._edge = Edge(
            table, settle=settle, failed=_why_not, fallback=codes.unsupported, always=codes.ALWAYS
        )
        self._server = RemotingServer(self._edge, net, fast=partial(_begin, state.stats, fast))
        self._background = Background("broker")
        self._started = AsyncExitStack()
        state.topics.on_change += [self._outbound.changed, state.held_requests.wake_topic]
        state.topics.keep.on_saved.append(fast.forget)
        store.on_arrival = self._arrived

    @classmethod
    def open(
        cls,
        settings: BrokerSettings | None = None,
        store: StoreSettings | None = None,
        net: NetSettings | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        worker: Callable[[str], Worker] = ThreadWorker,
        conf: Path | None = None,
    ) -> Broker:
        """Make a broker that does not listen yet; its store is open, locked and recovered.

        `conf` is the settings file, where changes made while the broker runs are written down.
        Raises SettingsError, StoreLocked, NotAStore or StoreCorrupt.
        """
        settings = settings or BrokerSettings()
        root = at_home("storePathRootDir", settings.store_path_root_dir)
        world = World(clock or SystemClock(), files or SystemFiles(), root)
        levels = DelayLevels.parse(settings.message_delay_level)
        store_settings = store or StoreSettings()
        opened = MessageStore.open(
            root,
            store_settings,
            clock=world.clock,
            files=world.files,
            tags_code=TagCodes(levels),
            store_host=_packed(_told_host(settings), settings.listen_port),
            worker=worker,
        )
        with ExitStack() as undo:
            undo.callback(opened.abandon)
            state = State(opened, levels, settings, store_settings, world)
            file = TextFile(conf, world.files) if conf else None
            broker = cls(settings, opened, store_settings, state, net or NetSettings(), world, file)
            undo.pop_all()
        return broker

    @property
    def address(self) -> str:
        """Where clients reach the broker, "host:port"."""
        host = _told_host(self.settings)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are answered."""
        return self._edge.codes

    async def start(self) -> None:
        """Start all parts in order; what had started is stopped again when one of them fails."""
        steps: list[Step] = [
            (self.store.start, self.store.stop),
            (self._start_background, self._stop_background),
            (self._listen, self._stop_listening),
            (self._register, self._unregister),
        ]
        async with AsyncExitStack() as started:
            for start, stop in steps:
                started.push_async_callback(stop)
                await start()
            self._started = started.pop_all()

    async def stop(self) -> None:
        """Stop all parts, the last one started first, each even when another one fails.

        A second call does nothing.
        """
        await self._started.aclose()

    async def _listen(self) -> None:
        settings = self.settings
        self.port = await self._server.start(settings.bind_address, settings.listen_port)
        if settings.listen_port > VIP_BELOW:  # a port that the system chose has no neighbours
            await self._server.start_second(settings.bind_address, self.port - VIP_BELOW)
        host = _packed(_told_host(settings), self.port)
        self.store.move_to(host)
        self._send.store_host = host
        self._outbound.announce(self.address)

    async def _stop_listening(self) -> None:
        self.state.held_requests.close()
        self._edge.stop()
        await self._server.stop()

    async def _start_background(self) -> None:
        self.state.topics.keep.is_aside = self.state.groups.keep.is_aside = True
        settings, every = self.settings, self._background.every
        # never ends by itself, but should an error end it, it begins again
        every(1.0, self.state.delayed_messages.run, name="delivery of delayed messages", first_s=0)
        every(1.0, self.state.check_back.run, name="check of half messages", first_s=0)
        offsets_s = settings.flush_consumer_offset_interval_ms / 1000
        every(offsets_s, self.state.offsets.save_in_thread, name="consumer offsets")
        every(
            settings.flush_delay_offset_interval_ms / 1000,
            self.state.delayed_messages.save_in_thread,
            name="delay offsets",
        )
        every(FILTERS_S, self.state.filters.save_in_thread, name="consumer filters")
        every(HOUSEKEEPING_S, self._close_silent_clients, name="housekeeping of clients")
        every(SAMPLE_S, self.state.stats.sample_in_slices, name="statistics", first_s=0)
        every(1.0, self.state.dead_letters.read_back, name="dead letters", first_s=0)

    async def _stop_background(self) -> None:
        await self._background.stop()
        await self.state.topics.keep.written()
        await self.state.groups.keep.written()
        await self.state.filters.written()
        self.state.filters.save()
        await self.state.offsets.written()
        await self.state.delayed_messages.written()
        self.state.delayed_messages.save()
        safe = asyncio.get_running_loop().create_future()
        self.store.settle(safe.set_result)
        await safe
        self.state.offsets.save()

    async def _register(self) -> None:
        if self.settings.namesrv_addrs:
            await self._outbound.register()
        self._background.every(1.0, self._outbound.run, name="registration", first_s=0)

    async def _unregister(self) -> None:
        await self._outbound.unregister()
        await self._pool.close()

    def _pull_handler(self, now_ms: Callable[[], int]) -> PullHandler:
        state, settings = self.state, self.settings
        topics, groups, clients = state.topics, state.groups, state.clients
        filters, offsets, held_requests = state.filters, state.offsets, state.held_requests
        return PullHandler(
            *(self.store, topics, groups, clients, filters, offsets, held_requests),
            *(state.stats, settings, now_ms),
        )

    def _table(
        self, now_ms: Callable[[], int], store_settings: StoreSettings
    ) -> dict[int, Handler]:
        fresh_bytes = ram_bytes() * store_settings.memory_percent // 100
        settings, store, state = self.settings, self.store, self.state
        topics, groups, clients = state.topics, state.groups, state.clients
        offsets, held_requests, stats = state.offsets, state.held_requests, state.stats
        delayed, dead_letters = state.delayed_messages, state.dead_letters
        send_back = SendBackHandler(
            store, topics, groups, delayed, dead_letters, stats, settings, now_ms
        )
        heartbeat = HeartbeatHandler(
            clients, topics, groups, state.filters, stats, settings, now_ms
        )
        moves = MoveRequests(store, topics, groups, clients, offsets, held_requests, settings)
        reply = ReplyHandler(
            store, clients, self._send, stats, settings, lambda: self.address, now_ms
        )
        self._live.on_broker += [
            self._pull.adjust,
            send_back.adjust,
            heartbeat.adjust,
            moves.adjust,
        ]
        self._live.on_broker += [state.transactions.adjust, state.check_back.adjust, reply.adjust]
        progress = ProgressRequests(
            store,
            topics,
            groups,
            clients,
            offsets,
            state.delayed_messages,
            stats,
            now_ms,
            settings.broker_name,
            lambda: self.address,
        )
        return codes.table(
            send=self._send,
            pull=self._pull,
            positions=OffsetRequestHandler(store, topics, groups, offsets, fresh_bytes),
            heartbeat=heartbeat,
            order=QueueLockHandler(state.locks),
            send_back=send_back,
            reply=reply,
            transactions=state.transactions,
            view=MessageLookupHandler(store, store_settings),
            admin={
                **TopicRequests(
                    *(topics, offsets, store, stats, self._outbound),
                    may_mix=settings.enable_mixed_message_type,
                ).table(),
                **GroupRequests(groups, offsets, stats).table(),
                **progress.table(),
                **moves.table(),
                **StatisticsRequests(store, topics, clients, stats).table(),
                **ConnectionRequests(clients, store).table(),
            },
        )

    def _adjust(self, settings: BrokerSettings) -> None:
        """Let what has no settings of its own work with new ones."""
        before, self.settings = self.settings, settings
        state = self.state
        state.topics.auto_create = settings.auto_create_topic_enable
        state.groups.auto_create = settings.auto_create_subscription_group
        state.clients.silence_ms = settings.channel_expired_timeout_ms
        state.locks.live_ms = settings.queue_lock_expire_ms
        state.held_requests.count_max = settings.parked_pulls_max
        if settings.broker_permission != before.broker_permission:
            state.topics.stamp()

    def _registered_topics(self) -> TopicTable:
        topics, mine = self.state.topics, self.settings.broker_permission
        if permission.is_readable(mine) and permission.is_writable(mine):
            return TopicTable(topics.version, topics.table)
        told = {name: replace(each, perm=each.perm & mine) for name, each in topics.table.items()}
        return TopicTable(topics.version, told)

    def _arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        if topic == SCHEDULE_TOPIC:
            self.state.delayed_messages.arrived(tags_code)
        self.state.held_requests.arrived(topic, queue_id, max_offset, tags_code)

    def _close_silent_clients(self) -> None:
        for connection in self.state.clients.sweep():
            connection.close()


def _begin(stats: Stats, fast: FastSend, connection: Connection) -> Sender:
    """A connection begins."""
    stats.channel("CONNECT")
    connection.on_close(lambda _connection: stats.channel("CLOSE"))
    return fast(connection)


def _settle(store: MessageStore, done: Callable[[Any], None]) -> None:
    store.settle(lambda status: done(None if status is PutStatus.PUT_OK else status))


def _why_not(status: PutStatus) -> tuple[int, str]:
    return PUT_STATUS_CODES[status], PUT_STATUS_REMARKS[status]


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


def _told_host(settings: BrokerSettings) -> str:
    return settings.broker_ip1 or settings.bind_address


def _packed(host: str, port: int) -> bytes:
    """The address as records carry it: IP, then the port as int32."""
    try:
        ip = ip_address(host.strip("[]"))
    except ValueError:
        try:
            ip = ip_address(socket.gethostbyname(host))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"brokerIP1 {host!r} is no address of this network: {reason}"
            ) from error
    return ip.packed + pack(">i", port)
