"""Carries out what a failure policy decided: dead letter, skip, store, or stop.

Knows nothing of when that is due (`rules.failures.failure_policy`). Invariant: an action counts as
carried out only once a broker has the dead letter, or the sink returned; until then it is tried
again, as long as the queue is ours.
Java: ConsumeMessageOrderlyService.sendMessageBack (dead letters only)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.client.handling import handler_call as handlers
from cometmq.rules.failures.failure_policy import FailureAction, OnFailure, policy_of
from cometmq.rules.failures.retry_policy import backoff_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.handling.handler_call import HandlerOutcome
    from cometmq.client.handling.worker_pools import ThreadPool
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.rules.failures.failure_policy import FailureDecision, FailurePolicy, Policies
    from cometmq.runtime.clock_and_file_protocols import Clock

    Divert = Callable[[MessageExt, MessageQueue, HandlerOutcome], Awaitable[bool]]

log = logging.getLogger(__name__)

_PAUSE_FIRST_S = 0.5
_PAUSE_MOST_S = 10.0
_OF_DAMAGE = OnFailure.dead_letter()


class FailureActions:
    """Carries out decisions for one consumer. One loop owns it."""

    def __init__(
        self,
        policies: Policies | None,
        failed_sender: FailedMessageSender,
        threads: ThreadPool,
        clock: Clock,
        stop_consumer: Callable[[str], None],
        divert: Divert | None = None,
    ) -> None:
        """`stop_consumer` stops the consumer soon, for the reason given.

        `divert` diverts the key of a message; needed where a policy does.
        """
        self._divert = divert
        self._policies = policies or {}
        self._failed_sender = failed_sender
        self._threads = threads
        self._clock = clock
        self._stop_consumer = stop_consumer

    def policy_of(
        self, subscription: Subscription, outcome: HandlerOutcome
    ) -> FailurePolicy | None:
        """The policy for an error of this topic's handler; None where nobody chose one.

        Then a damaged message becomes a dead letter at once: no attempt can help, and its broker
        has no whole copy to send back.
        """
        known = subscription.on_failure or self._policies
        return policy_of(known, outcome.kind, _OF_DAMAGE if outcome.is_damaged else None)

    async def apply(
        self,
        assigned: AssignedQueue,
        message: MessageExt,
        decision: FailureDecision,
        outcome: HandlerOutcome,
    ) -> bool:
        """Carry out the decision about a message; False: the queue is lost or the consumer stops.

        A broker or a sink that fails is tried again, for ever, with growing pauses.
        """
        failures = 0
        while not await self._try(assigned, message, decision, outcome):
            if decision.action is FailureAction.STOP:
                return False
            failures += 1
            await assigned.sleep_unless_dropped(backoff_s(failures, _PAUSE_FIRST_S, _PAUSE_MOST_S))
            if assigned.is_dropped or assigned.has_lost_lock:
                return False
        return True

    async def _try(
        self,
        assigned: AssignedQueue,
        message: MessageExt,
        decision: FailureDecision,
        outcome: HandlerOutcome,
    ) -> bool:
        if decision.action is FailureAction.DEAD_LETTER:
            times_max = message.reconsume_times
            return await self._failed_sender.send_dead_letter(message, outcome.reason, times_max)
        if decision.action is FailureAction.SKIP:
            log.warning("%s is skipped, as its policy says: %s", message, outcome.reason)
            return True
        if decision.action is FailureAction.DIVERT:
            assert self._divert is not None, "only who can divert has a policy that does"
            return await self._divert(message, assigned.queue, outcome)
        if decision.action is FailureAction.STORE:
            return await self._store(message, decision, outcome)
        self._stop_consumer(f"{message} failed, and its policy is to stop: {outcome.reason}")
        return False

    async def _store(
        self, message: MessageExt, decision: FailureDecision, outcome: HandlerOutcome
    ) -> bool:
        """Call the sink in a thread of its own; whether it returned."""
        assert decision.policy is not None, "a decision to store comes from a policy"
        sink = decision.policy.sink
        assert sink is not None, "a policy that stores has a sink"
        failure = handlers.FailureDetails(
            message.reconsume_times + 1, outcome.kind, outcome.reason, self._clock.now_ms()
        )
        is_stored: list[bool] = []
        await self._threads.run(
            lambda: is_stored.append(handlers.call_sink(sink, message, failure))
        )
        return is_stored[0]
