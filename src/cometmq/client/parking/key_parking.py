"""Parking for a consumer by key: which queues have it, and what becomes of their batches.

Owns the parked state of the queues of one consumer; knows nothing of lanes' order and of slots.
Java: none.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.parking.queue_parking import QueueParking
from cometmq.errors import CometError
from cometmq.model.topic import is_retry_topic
from cometmq.rules.failures.failure_policy import FailureAction, FailureDecision, park_bounds
from cometmq.rules.queues.key_lanes import BARRIER

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.by_key_run import KeyRun
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

_FULL_PAUSE_S = 1.0
_MAINTAIN_S = 1.0


class KeyParking:
    """The parked keys of one consumer. One loop owns it."""

    def __init__(self, context: StrategyContext, key_of: Callable[[MessageExt], Hashable]) -> None:
        self._context = context
        self._key_of = key_of

    def parking_of(self, assigned: AssignedQueue) -> QueueParking | None:
        """What a new queue needs for its parked keys; None where no policy parks."""
        context, topic = self._context, assigned.queue.topic
        if is_retry_topic(topic):  # by key nothing is sent back
            return None
        own = context.subscriptions.subscription_of(topic).on_failure
        bounds = park_bounds(own or context.options.on_failure)
        if bounds is None or context.parking_logs is None:
            return None
        logs = context.parking_logs
        return QueueParking(
            assigned,
            logs.next_owner(),
            logs.log_of(assigned.queue.broker_name),
            bounds,
            logs.sender.options,
            self.key_text,
            context.restart_queue,
            context.stop_consumer,
        )

    def key_text(self, message: MessageExt) -> str:
        """A key as records have it: a text as it is, another by its repr, none by its place."""
        key = self._key_of(message)
        if isinstance(key, str):
            return key
        return f"#{message.queue_offset}" if key is BARRIER else repr(key)

    async def park_failed(
        self, run: KeyRun, parking: QueueParking, decision: FailureDecision
    ) -> bool:
        """Park the key of a message that failed, or do what the bounds say; whether it is done."""
        assigned, message = run.state.assigned, run.batch.messages[0]
        policy = decision.policy
        assert policy is not None, "a decision to park comes from a policy"
        assert policy.bounds is not None, "a policy that parks has bounds"
        while not assigned.is_dropped and not assigned.has_lost_lock:
            try:
                if await parking.park_failed(message, run.outcome.reason):
                    return True
            except CometError as error:
                log.warning("%s cannot be parked yet: %s", message, error)
            else:
                if policy.bounds.at_bound != "block" and not assigned.is_dropped:
                    action = FailureAction[policy.bounds.at_bound.upper()]
                    instead = FailureDecision(action, 0, policy)
                    actions = self._context.failure_actions
                    return await actions.apply(assigned, message, instead, run.outcome)
            await assigned.sleep_unless_dropped(_FULL_PAUSE_S)
        return False

    async def park_followers(self, parking: QueueParking, messages: list[MessageExt]) -> int:
        """Park the first messages of a parked key; how many are done with. Never raises."""
        try:
            return await parking.park_followers(messages)
        except CometError as error:
            log.info("%s cannot follow its parked key yet: %s", messages[0], error)
            return 0

    async def maintain(self, assigned: AssignedQueue, parking: QueueParking) -> None:
        """Let parked messages leave, look at their ages, and write OPEN again; now and then."""
        if not parking.is_open or self._context.key_drains is None:
            return
        if not parking.is_owner():
            parking.lose()
            return
        self._context.key_drains.start(assigned, parking)
        now = asyncio.get_running_loop().time()
        if now < parking.maintained_at + _MAINTAIN_S:
            return
        parking.maintained_at = now
        try:
            await parking.check_age()
            if parking.may_reopen():
                await parking.reopen()
        except CometError as error:
            log.info("the parked keys of %s are looked at later: %s", assigned.queue, error)
