"""All handlers of a broker, each made with exactly what it works with.

Owns the composition only. Refuses to know what a handler does with a request.
Java: BrokerController.registerProcessor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cometmq.broker.admin.connection_requests import ConnectionRequests
from cometmq.broker.admin.group_requests import GroupRequests
from cometmq.broker.admin.offset_reset_requests import OffsetResetRequests
from cometmq.broker.admin.progress_requests import ProgressRequests
from cometmq.broker.admin.runtime_requests import RuntimeRequests
from cometmq.broker.admin.statistics_requests import StatisticsRequests
from cometmq.broker.admin.topic_requests import TopicRequests
from cometmq.broker.delivery.recall import RecallHandler
from cometmq.broker.delivery.reply import ReplyHandler
from cometmq.broker.delivery.send_back import SendBackHandler
from cometmq.broker.delivery.timer_requests import TimerRequests
from cometmq.broker.groups.heartbeat import HeartbeatHandler
from cometmq.broker.groups.lock_requests import QueueLockHandler
from cometmq.broker.groups.offset_requests import OffsetRequestHandler
from cometmq.broker.groups.unequal_members import UnequalMembers
from cometmq.broker.pulls.message_lookup import MessageLookupHandler
from cometmq.broker.pulls.pull_check import PullCheck
from cometmq.broker.pulls.pull_handler import PullHandler
from cometmq.broker.pulls.pull_reader import PullReader
from cometmq.broker.pulls.read_adviser import ReadAdviser
from cometmq.broker.sends.batch_writer import BatchWriter
from cometmq.broker.sends.message_preparation import MessagePreparer
from cometmq.broker.sends.send_check import SendCheck
from cometmq.broker.sends.send_fast_path import FastPaths
from cometmq.broker.sends.send_handler import SendHandler
from cometmq.broker.sends.send_response import SendResponses
from cometmq.broker.sends.single_message_writer import RetryLimit, SingleMessageWriter
from cometmq.net.admission import FastPathAdmission, found_admission
from cometmq.runtime.system_clock_and_files import ram_bytes
from cometmq.wire.records.message_id import UniqKeyGenerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.broker_state import BrokerEnvironment, BrokerState
    from cometmq.broker.cluster.global_order_check import GlobalOrderCheck
    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.net.endpoint import Endpoint
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore


class BrokerHandlers:
    """The handlers of one broker. Belongs to the broker's loop."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        store: MessageStore,
        state: BrokerState,
        registration: NamesrvRegistration,
        global_order: GlobalOrderCheck,
        address: Callable[[], str],
        store_host: bytes,
        is_master_followed: Callable[[], bool] | None = None,
    ) -> None:
        """`address()` is where clients reach the broker; `store_host` is the same in a record.

        `is_master_followed`: whether a slave copies its master now; None on a master.
        """
        self._environment = environment
        self._is_master_followed = is_master_followed
        self._fresh_bytes = ram_bytes() * environment.store_settings.memory_percent // 100
        self._store = store
        self._state = state
        self._registration = registration
        self._global_order = global_order
        self._address = address
        self.send = self._make_send(store_host)
        self.pull = self._make_pull()
        self.fast_path = self._make_fast_path()
        self._unequal = UnequalMembers(
            state.clients, state.held_pulls, environment.clock.monotonic_ms
        )
        self._heartbeat = self._make_heartbeat()
        self._send_back = self._make_send_back()
        self._reply = ReplyHandler(
            store,
            state.clients,
            self.send,
            state.stats,
            environment.settings,
            address,
            environment.clock.now_ms,
        )
        self._recall = RecallHandler(
            store, state.topics, state.timer_schedule, state.stats, environment.settings
        )
        self._offset_resets = OffsetResetRequests(
            store,
            state.topics,
            state.groups,
            state.clients,
            state.offsets,
            state.held_pulls,
            environment.settings,
            state.large_tables,
        )

    def settings_subscribers(self) -> list[Callable[[BrokerSettings], None]]:
        """What must be called with new settings as soon as they change."""
        return [
            self.send.adjust,
            self.pull.adjust,
            self._heartbeat.adjust,
            self._send_back.adjust,
            self._reply.adjust,
            self._recall.adjust,
            self._offset_resets.adjust,
        ]

    def store_settings_subscribers(self) -> list[Callable[[StoreSettings], None]]:
        """The same for the settings that they share with the store."""
        return [self.send.adjust_store, self.fast_path.adjust]

    def endpoints(self) -> list[Endpoint]:
        """All requests that these handlers answer."""
        environment, state, store = self._environment, self._state, self._store
        offset_requests = OffsetRequestHandler(
            store, state.topics, state.groups, state.offsets, self._fresh_bytes
        )
        return [
            *self.send.endpoints(),
            *self.pull.endpoints(),
            *offset_requests.endpoints(),
            *self._heartbeat.endpoints(),
            *QueueLockHandler(state.locks, self._unequal).endpoints(),
            *self._send_back.endpoints(),
            *self._reply.endpoints(),
            *self._recall.endpoints(),
            *TimerRequests(state.timer_messages, environment.clock.now_ms).endpoints(),
            *state.transactions.endpoints(),
            *MessageLookupHandler(
                store, environment.store_settings, found_admission(environment.admission)
            ).endpoints(),
            *self._topic_requests().endpoints(),
            *GroupRequests(
                state.groups, state.offsets, state.stats, state.large_tables
            ).endpoints(),
            *self._progress_requests().endpoints(),
            *self._offset_resets.endpoints(),
            *StatisticsRequests(store, state.topics, state.clients, state.stats).endpoints(),
            *ConnectionRequests(
                state.clients, store, state.large_tables, found_admission(environment.admission)
            ).endpoints(),
            *self._runtime_requests().endpoints(),
        ]

    def _make_send(self, store_host: bytes) -> SendHandler:
        state, now_ms = self._state, self._environment.clock.now_ms
        settings = self._environment.settings
        keys = UniqKeyGenerator(store_host[:-4], os.getpid(), id(self))
        preparation = MessagePreparer(
            settings, self._environment.store_settings, lambda: keys.next_key(now_ms())
        )
        single_put = SingleMessageWriter(
            self._store,
            RetryLimit(state.groups, state.locks),
            state.delayed_messages,
            state.dead_letters,
            state.transactions,
            state.timer_schedule,
            state.stats,
        )
        return SendHandler(
            SendCheck(state.topics, settings),
            preparation,
            single_put,
            BatchWriter(self._store, preparation, state.stats, self._environment.store_settings),
            SendResponses(preparation.region, store_host, settings.broker_name),
        )

    def _make_pull(self) -> PullHandler:
        state, settings = self._state, self._environment.settings
        check = PullCheck(state.topics, state.groups, state.clients, state.filters, settings)
        reader = PullReader(self._store)
        monotonic_s = self._environment.clock.monotonic_s
        advice = None
        if settings.is_slave or settings.slave_read_enable:
            followed = self._is_master_followed
            advice = ReadAdviser(self._store, self._fresh_bytes, settings.broker_id, followed)
        return PullHandler(
            check, reader, state.offsets, state.held_pulls, state.stats, monotonic_s, advice
        )

    def _make_fast_path(self) -> FastPaths:
        state, admission = self._state, self._environment.admission
        gate = None
        if admission is not None:
            endpoints = [*self.send.endpoints(), *self.pull.endpoints()]
            gate = FastPathAdmission(admission, endpoints)
        made = FastPaths(
            self._store,
            state.topics,
            self.send,
            self.pull,
            state.stats,
            self._environment.settings.region_id,
            self._environment.store_settings,
            self._environment.clock.monotonic_ms,
            gate,
        )
        if admission is not None:
            admission.on_change.append(made.forget)
        return made

    def _make_heartbeat(self) -> HeartbeatHandler:
        state, environment = self._state, self._environment
        return HeartbeatHandler(
            state.clients,
            state.topics,
            state.groups,
            state.filters,
            state.locks,
            self._unequal,
            state.stats,
            environment.settings,
            environment.clock.monotonic_ms,
        )

    def _make_send_back(self) -> SendBackHandler:
        state = self._state
        return SendBackHandler(
            self._store,
            state.topics,
            state.groups,
            state.delayed_messages,
            state.dead_letters,
            state.stats,
            self._environment.settings,
            self._environment.clock.now_ms,
            found_admission(self._environment.admission),
        )

    def _topic_requests(self) -> TopicRequests:
        state = self._state
        return TopicRequests(
            state.topics,
            state.offsets,
            self._store,
            state.stats,
            self._registration,
            self._global_order,
            state.large_tables,
            may_mix=self._environment.settings.enable_mixed_message_type,
        )

    def _progress_requests(self) -> ProgressRequests:
        state = self._state
        return ProgressRequests(
            self._store,
            state.topics,
            state.groups,
            state.clients,
            state.offsets,
            state.delayed_messages,
            state.stats,
            state.large_tables,
            self._environment.clock.now_ms,
            self._environment.settings.broker_name,
            self._address,
        )

    def _runtime_requests(self) -> RuntimeRequests:
        environment, state = self._environment, self._state
        return RuntimeRequests(
            self._store,
            state.delayed_messages,
            state.stats,
            state.metrics,
            environment.clock.now_ms,
        )
