"""How a message that has failed often enough meets its end, and who is told.

Owns the carrying out of a decision: dead letter, skip, stop, store; refuses to know when it is due
(`rules.failure_policy`). Invariant: a message counts as having met its end only once a broker has
the dead letter, or the sink returned; until then it is tried again, as long as the queue is ours.
Java: ConsumeMessageOrderlyService.sendMessageBack (dead letters only)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.handling import handler_call as handlers
from cometmq.rules.failure_policy import FailureAction, policy_of
from cometmq.rules.retry_policy import backoff_s

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.client.handling.handler_call import HandlerOutcome
    from cometmq.model.message import MessageExt
    from cometmq.rules.failure_policy import FailureDecision, FailurePolicy

log = logging.getLogger(__name__)

_AGAIN_FIRST_S, _AGAIN_MOST_S = 0.5, 10.0
_LOOK_S = 0.05


class FailureActions:
    """Carries out verdicts for one consumer. One loop owns it."""

    def __init__(self, parts: StrategyContext) -> None:
        self._parts = parts

    def policy_of(
        self, subscription: Subscription, outcome: HandlerOutcome
    ) -> FailurePolicy | None:
        """The policy for an error of this topic's handler; None where nobody chose one."""
        known = subscription.on_failure or self._parts.options.on_failure or {}
        return policy_of(known, outcome.kind, None)

    async def apply(
        self,
        assigned: AssignedQueue,
        message: MessageExt,
        decision: FailureDecision,
        outcome: HandlerOutcome,
    ) -> bool:
        """Carry out the end of a message; False when the queue is not ours any more, or all stops.

        A broker or a sink that fails is asked again, for ever, with growing pauses.
        """
        failures = 0
        while not await self._try(assigned, message, decision, outcome):
            if decision.action is FailureAction.STOP:
                return False
            failures += 1
            await self._rest(assigned, backoff_s(failures, _AGAIN_FIRST_S, _AGAIN_MOST_S))
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
            return await self._parts.failed_sender.send_dead_letter(
                message, assigned.queue, outcome.reason, times_max
            )
        if decision.action is FailureAction.SKIP:
            log.warning("%s is skipped, as its policy says: %s", message, outcome.reason)
            return True
        if decision.action is FailureAction.STORE:
            return await self._store(message, decision, outcome)
        self._parts.stop_consumer(f"{message} failed, and its policy is to stop: {outcome.reason}")
        return False

    async def _store(
        self, message: MessageExt, decision: FailureDecision, outcome: HandlerOutcome
    ) -> bool:
        """Call the sink in a thread of its own; whether it returned."""
        assert decision.policy is not None, "a decision to store comes from a policy"
        sink = decision.policy.sink
        assert sink is not None, "a policy that stores has a sink"
        failure = handlers.FailureDetails(
            message.reconsume_times + 1, outcome.kind, outcome.reason, self._parts.clock.now_ms()
        )
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        is_stored: list[bool] = []
        self._parts.threads.submit(
            lambda: is_stored.append(handlers.call_sink(sink, message, failure)),
            lambda: _set(over),
        )
        await over
        return is_stored[0]

    async def _rest(self, assigned: AssignedQueue, pause_s: float) -> None:
        """Wait, but notice soon when the queue is dropped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_s
        while not assigned.is_dropped and (left_s := until - loop.time()) > 0:
            await asyncio.sleep(min(left_s, _LOOK_S))


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
