"""Puts a broker together, starts it and stops it.

The only file of the package that makes objects of other packages. Start order is one list, the stop
goes through it backwards. Java: BrokerController, BrokerStartup.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cometmq import native
from cometmq.access.server_access import ServerAccess, only_admission
from cometmq.broker.advertised_address import advertised_host, packed_address
from cometmq.broker.broker_state import BrokerEnvironment, BrokerState, refuse_bad_tables
from cometmq.broker.cluster.config_requests import BrokerConfigRequests
from cometmq.broker.cluster.global_order_check import GlobalOrderCheck
from cometmq.broker.cluster.own_address_check import wrong_address
from cometmq.broker.cluster.registration import NamesrvRegistration
from cometmq.broker.cluster.snapshot_requests import LOOK_S
from cometmq.broker.health import BrokerHealth
from cometmq.broker.metrics.broker_figures import BrokerFigures
from cometmq.broker.metrics.gauges import register_replication, register_sockets
from cometmq.broker.metrics.group_progress import GroupProgressReader
from cometmq.broker.replication.epoch_keeper import EpochKeeper
from cometmq.broker.replication.epoch_peers import EpochPeers
from cometmq.broker.replication.role_file import RoleFile
from cometmq.broker.replication.roles import MasterRole, SlaveRole
from cometmq.broker.replication.slave_refusals import refused_on_slave
from cometmq.broker.request_handlers import BrokerHandlers
from cometmq.broker.requests.durable_handler import DurableHandler
from cometmq.broker.requests.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.broker.requests.unsupported import unsupported
from cometmq.broker.sends.tag_codes import TagCodes
from cometmq.metrics.traffic_counters import SAMPLE_S
from cometmq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from cometmq.net.address import join_address
from cometmq.net.channel_pool import ChannelPool
from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.server import FastPath, RemotingServer
from cometmq.net.tls_contexts import RELOAD_S, TlsContexts
from cometmq.rules import permission
from cometmq.rules.delay_levels import DelayLevels
from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.system_clock_and_files import (
    SystemClock,
    SystemFiles,
    ThreadWorker,
    expand_user_path,
)
from cometmq.runtime.text_file import TextFile
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.monitoring import MonitoringSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings
from cometmq.settings.tls import TlsSettings
from cometmq.store.lost_tables import refuse_lost_tables
from cometmq.store.message_store import MessageStore
from cometmq.store.put_result import PutStatus
from cometmq.store.recovery.full_disk import open_failure
from cometmq.wire.bodies.topic import TopicTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from cometmq.net.admission import Admission
    from cometmq.net.connection import Connection
    from cometmq.runtime.clock_and_file_protocols import Clock, Files, Worker

    Step = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]

log = logging.getLogger(__name__)

FILTERS_S = 10
"""Time between writes of consumerFilter.json, seconds."""

HOUSEKEEPING_S = 10
"""Time between looks for clients that fell silent, seconds."""

VIP_BELOW = 2
"""Clients with `vipChannelEnabled` take this off the port: RocketMQ's dashboard, old clients."""


class Broker:
    """A broker. Belongs to the loop that starts it; `open` makes it."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        store: MessageStore,
        state: BrokerState,
        net: NetSettings,
        access: AccessSettings,
        conf: TextFile | None,
        tls: TlsContexts,
        role: RoleFile,
        monitoring: MonitoringSettings,
    ) -> None:
        settings = environment.settings
        self.settings, self.store, self.state = settings, store, state
        self.port = 0
        """The port listened on, once started."""
        self._tls = tls
        self._access = environment.access
        self._sign = self._access.preparer()
        self._pool = ChannelPool(prepare=self._sign, tls=tls.client)
        self._registration = NamesrvRegistration(
            self._pool, settings, settings.namesrv_addrs, self._registered_topics
        )
        self._global_order = GlobalOrderCheck(
            self._pool, lambda: self._registration.name_servers, settings.broker_name
        )
        self.epochs = EpochKeeper(role, store, settings, lambda: self.address)
        self._replication = self._make_role(settings)
        register_replication(state.metrics, self._replication)
        following = self._replication.is_following if settings.is_slave else None
        self._handlers = BrokerHandlers(
            environment,
            store,
            state,
            self._registration,
            self._global_order,
            lambda: self.address,
            packed_address(advertised_host(settings), settings.listen_port),
            following,
        )
        kinds = (settings, environment.store_settings, net, access, monitoring)
        self._subscribe(live := LiveSettings(*kinds))
        self._live = live
        config = BrokerConfigRequests(live, conf, environment.clock.now_ms)
        endpoints = [*self._handlers.endpoints(), *config.endpoints(), *self._access.endpoints()]
        endpoints += [*self._replication.endpoints(), *self.epochs.endpoints()]
        self._dispatcher = self._make_dispatcher(endpoints, environment.admission)
        self._server = RemotingServer(
            self._dispatcher,
            net,
            fast_path=self._begin_connection,
            monotonic_s=environment.clock.monotonic_s,
            tls=tls,
        )
        register_sockets(state.metrics, self._server)
        self.health = BrokerHealth(store, self._registration, following)
        self.figures = self._make_figures(environment)
        self._background, self._started = BackgroundTasks("broker"), AsyncExitStack()
        self._connect_events()

    def _make_figures(self, environment: BrokerEnvironment) -> BrokerFigures:
        state = self.state
        progress = GroupProgressReader(
            self.store, state.topics, state.groups, state.clients, state.offsets
        )
        return BrokerFigures(
            state.metrics,
            self.store,
            state.topics,
            state.clients,
            state.timer_messages,
            progress,
            lambda: self.settings.broker_permission,
            environment.clock.now_ms,
        )

    def _make_role(self, settings: BrokerSettings) -> MasterRole | SlaveRole:
        store, keeper, registration = self.store, self.epochs, self._registration
        peers = EpochPeers(self._pool, registration, settings, store, keeper, lambda: self.address)
        if not settings.is_slave:
            return MasterRole(store, settings, registration, self._tls, keeper, peers)
        return SlaveRole(
            store,
            self.state,
            settings,
            self._pool,
            registration,
            self._tls,
            keeper,
            peers,
            self._access.directory,
        )

    def _subscribe(self, live: LiveSettings) -> None:
        """Have everything that works with live settings hear of changes."""
        live.subscribe(
            BrokerSettings,
            *self._handlers.settings_subscribers(),
            self._registration.adjust,
            self.state.transactions.adjust,
            self.state.check_back.adjust,
            self._adjust,
        )
        live.subscribe(
            StoreSettings,
            self.store.adjust,
            *self._handlers.store_settings_subscribers(),
            self.state.check_back.adjust_store,
        )

    def _make_dispatcher(
        self, endpoints: Iterable[Endpoint], admission: Admission | None
    ) -> RequestDispatcher:
        return RequestDispatcher(
            map(self._with_effects, endpoints),
            on_durable=partial(_on_durable, self.store),
            on_flushed=partial(_on_durable, self.store, local_only=True),
            failure_answer=_failure_answer,
            fallback=unsupported,
            admission=admission,
        )

    def _with_effects(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with a handler that waits for what its effects say."""
        if self.settings.is_slave:
            endpoint = refused_on_slave(endpoint)
        handler, effects = endpoint.handler, endpoint.effects
        if RequestEffect.CREATING in effects:
            handler = DurableHandler(
                handler,
                self.state.topics,
                self.state.groups,
                self._registration,
                partial(_on_durable, self.store),
                partial(_on_durable, self.store, local_only=True),
                _failure_answer,
            )
        return replace(endpoint, handler=handler)

    def _connect_events(self) -> None:
        """Have each part hear of what happens in others."""
        topics, held_pulls = self.state.topics, self.state.held_pulls
        topics.on_change += [self._registration.topics_changed, held_pulls.wake_topic]
        topics.writer.on_flushed.append(self._handlers.fast_path.forget)
        self._registration.on_order_topics = topics.mark_ordered
        self.store.on_arrival = self._messages_arrived
        if self.settings.is_slave:
            self.store.on_arrival = self._messages_copied

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
        access: AccessSettings | None = None,
        admission: Admission | None = None,
        tls: TlsSettings | None = None,
        monitoring: MonitoringSettings | None = None,
    ) -> Broker:
        """Make a broker that does not listen yet; its store is open, locked and recovered.

        `conf` is the settings file, where live changes are written down. `admission` is asked about
        every request, in place of what `access` asks for. `tls` says who may connect; `monitoring`
        is only shown. Raises SettingsError, StoreLocked, NotAStore or StoreCorrupt.
        """
        contexts = TlsContexts(tls or TlsSettings())
        settings, access = settings or BrokerSettings(), access or AccessSettings()
        files, cluster = files or SystemFiles(), settings.broker_cluster_name
        root = expand_user_path("storePathRootDir", settings.store_path_root_dir)
        settings = (role := RoleFile(root, files)).kept.applied_to(settings)
        guard = ServerAccess(access, root / "config", files, cluster=cluster)
        environment = BrokerEnvironment(
            settings,
            store or StoreSettings(),
            root,
            clock or SystemClock(),
            files,
            guard,
            only_admission(admission, guard.control),
        )
        refuse_lost_tables(environment.files, root)
        levels = DelayLevels.parse(settings.message_delay_level)
        opened = MessageStore.open(
            root,
            environment.store_settings,
            clock=environment.clock,
            files=environment.files,
            tags_code=TagCodes(levels),
            store_host=packed_address(advertised_host(settings), settings.listen_port),
            worker=worker,
            refuse=partial(refuse_bad_tables, environment),
        )
        with ExitStack() as undo:
            undo.callback(opened.abandon)
            guard.keep_initial_users()
            try:
                state = BrokerState(environment, opened, levels)
            except OSError as problem:
                raise open_failure(root, problem) from problem
            net, shown = net or NetSettings(), monitoring or MonitoringSettings()
            file = TextFile(conf, files) if conf else None
            broker = cls(environment, opened, state, net, access, file, contexts, role, shown)
            undo.pop_all()
        return broker

    @property
    def address(self) -> str:
        """Where clients reach the broker, "host:port"."""
        settings = self.settings
        return join_address(advertised_host(settings), self.port or settings.listen_port)

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are answered."""
        return self._dispatcher.codes

    async def start(self) -> None:
        """Start all parts in order; what had started is stopped again when one of them fails."""
        steps: list[Step] = [
            (self.store.start, self.store.stop),
            (self._replication.check, self._pool.close),
            (self._start_background, self._stop_background),
            (self._replication.start, self._replication.stop),
            (self._listen, self._stop_listening),
            (self._register, self._unregister),
        ]
        async with AsyncExitStack() as started:
            for start, stop in steps:
                started.push_async_callback(stop)
                await start()
            self._started = started.pop_all()
        self.health.is_serving = True
        name, role = self.settings.broker_name, self.settings.broker_role
        log.info("the broker %s serves at %s as %s", name, self.address, role)
        log.info("hot loops of the broker %s run in %s", name, native.form())

    async def stop(self) -> None:
        """Stop all parts, the last one started first, each even when another one fails.

        A second call does nothing.
        """
        was_serving, self.health.is_serving = self.health.is_serving, False
        await self._started.aclose()
        if was_serving:
            log.info("the broker %s has stopped", self.settings.broker_name)

    async def _listen(self) -> None:
        settings = self.settings
        self.port = await self._server.start(settings.bind_address, settings.listen_port)
        if settings.listen_port > VIP_BELOW:  # a port that the system chose has no neighbours
            await self._server.start_second(settings.bind_address, self.port - VIP_BELOW)
        self._live.note_chosen(replace(self._live.of(BrokerSettings), listen_port=self.port))
        host = packed_address(advertised_host(settings), self.port)
        self.store.set_store_host(host)
        self._handlers.send.responses.store_host = host
        self._registration.set_address(self.address)

    async def _stop_listening(self) -> None:
        self.state.held_requests.close()
        self._dispatcher.stop()
        await self._server.stop()

    async def _start_background(self) -> None:
        self.state.topics.writer.uses_thread = self.state.groups.writer.uses_thread = True
        settings, every = self.settings, self._background.every
        if not settings.is_slave:
            self._start_deliveries()
        offsets_s = settings.flush_consumer_offset_interval_ms / 1000
        every(offsets_s, self.state.offsets.save_in_thread, name="consumer offsets")
        every(
            settings.flush_delay_offset_interval_ms / 1000,
            self.state.delayed_messages.save_in_thread,
            name="delay offsets",
        )
        every(
            self._live.of(StoreSettings).timer_flush_interval_ms / 1000,
            self.state.timer_messages.save_in_thread,
            name="timers",
        )
        every(LOOK_S, self.state.snapshots.look, name="snapshots of the store", first_s=0)
        every(FILTERS_S, self.state.filters.save_in_thread, name="consumer filters")
        self._access.watch(self._background)
        if self._tls.reads_files:
            every(RELOAD_S, self._reload_tls, name="files of TLS")
        every(HOUSEKEEPING_S, self._close_silent_clients, name="housekeeping of clients")
        every(SAMPLE_S, self.state.stats.sample_in_slices, name="statistics", first_s=0)

    def _start_deliveries(self) -> None:
        """Start what puts messages without being asked: a master's alone."""
        every = self._background.every
        # never ends by itself, but should an error end it, it begins again
        every(1.0, self.state.delayed_messages.run, name="delivery of delayed messages", first_s=0)
        every(1.0, self.state.timer_messages.run, name="delivery of timer messages", first_s=0)
        every(1.0, self.state.check_back.run, name="check of half messages", first_s=0)
        every(1.0, self.state.dead_letters.read_back, name="dead letters", first_s=0)

    async def _reload_tls(self) -> None:
        if await asyncio.to_thread(self._tls.reload):
            self._pool.use_tls(self._tls.client)

    async def _stop_background(self) -> None:
        await self._background.stop()
        await self.state.topics.writer.wait_idle()
        await self.state.groups.writer.wait_idle()
        await self.state.filters.written()
        self.state.filters.save()
        await self.state.offsets.written()
        await self.state.delayed_messages.written()
        await self.state.delayed_messages.save_in_thread()
        await self.state.timer_messages.written()
        await self.state.timer_messages.save_in_thread(idle_ms=0)
        self.state.timers.close()
        safe = asyncio.get_running_loop().create_future()
        self.store.on_durable(safe.set_result, local_only=True)
        await safe
        self.state.offsets.save()

    async def _register(self) -> None:
        if self.settings.namesrv_addrs:
            await self._registration.register()
        if advertised_host(self.settings) != self.settings.bind_address:
            self._background.spawn(self._check_own_address(), name="check of the own address")
        self._background.every(1.0, self._registration.run, name="registration", first_s=0)

    async def _check_own_address(self) -> None:
        asked = wrong_address(self.address, self.settings, self._sign, self._tls.client)
        if (problem := await asked) is not None:
            log.warning("%s", problem)

    async def _unregister(self) -> None:
        await self._registration.unregister()

    def _adjust(self, settings: BrokerSettings) -> None:
        """Let what has no settings of its own work with new ones."""
        before, self.settings = self.settings, settings
        state = self.state
        state.topics.auto_create = settings.auto_create_topic_enable
        state.groups.auto_create = settings.auto_create_subscription_group
        state.clients.silence_ms = settings.channel_expired_timeout_ms
        state.locks.live_ms = settings.queue_lock_expire_ms
        state.held_requests.set_bounds(settings.held_pulls_max, settings.held_pulls_per_queue_max)
        if settings.broker_permission != before.broker_permission:
            state.topics.stamp()

    def _registered_topics(self) -> TopicTable:
        topics, perm = self.state.topics, self.settings.broker_permission
        if permission.is_readable(perm) and permission.is_writable(perm):
            return TopicTable(topics.version, topics.table)
        # Java: registerBrokerAll takes away what brokerPermission does not allow
        masked = {name: replace(each, perm=each.perm & perm) for name, each in topics.table.items()}
        return TopicTable(topics.version, masked)

    def _messages_arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        if topic == SCHEDULE_TOPIC:
            self.state.delayed_messages.arrived(tags_code)
        elif topic == TIMER_TOPIC:
            self.state.timer_messages.arrived()
        self.state.held_pulls.notify_arrival(topic, queue_id, max_offset, tags_code)

    def _messages_copied(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        self._replication.topic_arrived(topic)
        self._messages_arrived(topic, queue_id, max_offset, tags_code)

    def _begin_connection(self, connection: Connection) -> FastPath:
        stats = self.state.stats
        stats.count_connection("CONNECT")
        log.debug("%s connects", connection.addr)
        connection.on_close(lambda _connection: stats.count_connection("CLOSE"))
        return self._handlers.fast_path(connection)

    def _close_silent_clients(self) -> None:
        for connection in self.state.clients.sweep():
            connection.close()


def _on_durable(
    store: MessageStore, done: Callable[[Any], None], *, local_only: bool = False
) -> None:
    store.on_durable(
        lambda status: done(None if status is PutStatus.PUT_OK else status), local_only=local_only
    )


def _failure_answer(status: PutStatus) -> tuple[int, str]:
    return PUT_STATUS_CODES[status], PUT_STATUS_REMARKS[status]
