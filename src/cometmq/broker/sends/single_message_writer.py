"""Hot. Puts one sent message: to its queue, or where its properties say that it goes first.

A retry whose attempts are used up becomes a dead letter, a half message goes to the half queue, a
delayed one to the queue of its level.
Java: SendMessageProcessor.sendMessage, handleRetryAndDLQ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.delivery.timer_schedule import TIMER_MARK
from cometmq.broker.delivery.transactions import is_half_message
from cometmq.broker.sends.message_preparation import check_is_whole
from cometmq.model import topic as names
from cometmq.store.put_result import PutStatus
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.delivery.dead_letters import DeadLetterQueues
    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.delivery.timer_schedule import TimerSchedule
    from cometmq.broker.delivery.transactions import Transactions
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.net.handler import Reply
    from cometmq.store.message_draft import MessageDraft
    from cometmq.store.message_store import MessageStore
    from cometmq.store.put_result import PutResult

_WAITING_TOPICS = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
MAX_RECONSUME_SINCE = 121
"""Clients of this version and later say themselves how often a message may be tried."""


def attempts_max(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """How often a message of this group may be retried, as the client or the group says."""
    return group.retry_max_times if version < MAX_RECONSUME_SINCE or asked is None else asked


class RetryLimit:
    """Decides when a message that is sent to a retry topic is not retried any more."""

    def __init__(self, groups: ConsumerGroups, locks: QueueLocks) -> None:
        self._groups = groups
        self._locks = locks

    def is_exhausted(self, draft: MessageDraft, version: int, asked: int | None) -> bool:
        """Whether its attempts are used up, or its group consumes in order; raises Reject.

        `version` and `asked` are the client's version and maxReconsumeTimes.
        """
        group = draft.topic.removeprefix(names.RETRY_PREFIX)
        times_max = attempts_max(self._groups.admit(group), version, asked)
        # Java: handleRetryAndDLQ asks RebalanceLockManager.isLockAllExpired: a consumer in order
        # retries locally, and sends here only a message that it will not try again.
        return draft.reconsume_times > times_max or self._locks.is_any_held(group)


class SingleMessageWriter:
    """Puts single messages."""

    def __init__(
        self,
        store: MessageStore,
        retry_limit: RetryLimit,
        delayed_messages: DelayedMessages,
        dead_letters: DeadLetterQueues,
        transactions: Transactions,
        timer_schedule: TimerSchedule,
        stats: BrokerStats,
    ) -> None:
        self._store = store
        self._retry_limit = retry_limit
        self._delayed_messages = delayed_messages
        self._dead_letters = dead_letters
        self._transactions = transactions
        self._timer_schedule = timer_schedule
        self._stats = stats

    def is_exhausted(self, draft: MessageDraft, version: int, asked: int | None) -> bool:
        """Whether the message is a retry that becomes a dead letter; raises Reject.

        `version` and `asked` are the client's version and maxReconsumeTimes.
        """
        return names.is_retry_topic(draft.topic) and self._retry_limit.is_exhausted(
            draft, version, asked
        )

    def put(self, draft: MessageDraft) -> PutResult:
        """Put the message; `draft` says afterwards where it went. Raises Reject."""
        if b"TRAN_MSG\x01" in draft.properties and is_half_message(draft):
            if TIMER_MARK in draft.properties:
                self._timer_schedule.check(draft.properties)
            self._transactions.make_half(draft)
        else:
            check_is_whole(draft)
            if TIMER_MARK in draft.properties:
                self._timer_schedule.apply(draft)
            self._delayed_messages.schedule(draft)
        placed = self._store.put(draft)
        if placed.status is PutStatus.PUT_OK:
            self._stats.count_put(draft.topic, 1, placed.size)
            if draft.topic in _WAITING_TOPICS:
                self._stats.count_delayed(draft.topic, draft.queue_id, placed.size)
        return placed

    def put_dead_letter(
        self, draft: MessageDraft, respond: Callable[[PutResult], Reply]
    ) -> Reply | Awaitable[Reply]:
        """Put the message into its group's dead-letter queue, and respond when that is done."""
        group = draft.topic.removeprefix(names.RETRY_PREFIX)
        draft.properties = properties.put(draft.properties, b"DELAY", b"-1")
        return self._store.cold_reader.prepare_and_apply(
            partial(self._dead_letters.prepare, group),
            lambda newest: respond(self._dead_letters.put(group, draft, newest)),
        )
