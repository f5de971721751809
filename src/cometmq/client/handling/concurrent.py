"""Concurrent handling: messages of a queue go to many handlers at once, in no order.

Owns batching, the way of a failed message back to the broker, and the retry in place when no broker
takes it; refuses to know pulls and rebalance. Invariant: a message leaves the window only when its
handler is done with it or a broker has taken it back, so a crash repeats but never loses.
Java: ConsumeMessageConcurrentlyService
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from cometmq.client.failures.circuit_breakers import CircuitBreakers, key_of
from cometmq.client.failures.failure_actions import FailureActions
from cometmq.client.handling import handler_call as handlers
from cometmq.model.topic import is_retry_topic
from cometmq.rules.failure_policy import FailureAction, decide
from cometmq.rules.retry_policy import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.client.handling.handler_call import AsyncHandler, HandlerOutcome, SyncHandler
    from cometmq.model.message import MessageExt
    from cometmq.model.results import BlockedQueue
    from cometmq.rules.circuit_breaker import CircuitBreaker


log = logging.getLogger(__name__)

_SWEEPS = 15
"""Looks for stuck handlers in the time a handler may take."""
_EXPIRED_MAX, _EXPIRED_LEVEL = 16, 3


class _HandlerCall:
    """One call of a handler: runs somewhere, ends on the loop."""

    __slots__ = (
        "assigned",
        "began_at",
        "breaker",
        "clock",
        "expired",
        "is_probe",
        "messages",
        "on_end",
        "outcome",
        "spent_s",
        "subscription",
    )

    def __init__(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        subscription: Subscription,
        ended: Callable[[_HandlerCall], None],
        clock: Callable[[], float],
        breaker: CircuitBreaker | None,
    ) -> None:
        self.breaker = breaker
        self.is_probe = breaker is not None and breaker.is_open
        self.assigned, self.messages, self.subscription = assigned, messages, subscription
        self.on_end, self.clock = ended, clock
        self.outcome: HandlerOutcome | None = None
        self.began_at = self.spent_s = 0.0
        self.expired: list[MessageExt] = []
        """Those that were sent back meanwhile, since the handler took too long."""

    def run(self) -> None:
        """Call a plain handler, unless the queue was given away (in a thread)."""
        if self._may_begin():
            handler = cast("SyncHandler", self.subscription.handler)
            self.began_at = self.clock()
            self.outcome = handlers.call_handler(handler, self.messages)
            self.spent_s = self.clock() - self.began_at

    async def run_async(self) -> None:
        """Call an async handler, unless the queue was given away."""
        if self._may_begin():
            handler = cast("AsyncHandler", self.subscription.handler)
            self.began_at = self.clock()
            self.outcome = await handlers.call_async_handler(handler, self.messages)
            self.spent_s = self.clock() - self.began_at
        self.on_end(self)

    def _may_begin(self) -> bool:
        """Whether the queue is ours still, and the topic has no outage since it was asked."""
        is_out = self.breaker is not None and self.breaker.is_open and not self.is_probe
        return not self.assigned.is_dropped and not is_out

    def report_end(self) -> None:
        """Hand the outcome over (on the loop)."""
        self.on_end(self)


class ConcurrentStrategy:
    """MessageReceiver handlers for one concurrent consumer. One loop owns it."""

    overlap_count = 0

    def __init__(self, parts: StrategyContext) -> None:
        self._options, self._subscriptions = parts.options, parts.subscriptions
        self._threads, self._tasks = parts.threads, parts.tasks
        self._send_back, self._offsets = parts.failed_sender, parts.offsets
        self._background, self._broke_off = parts.background, parts.restart_after_error
        self._stats, self._failure_actions = parts.stats, FailureActions(parts)
        self._clock = asyncio.get_running_loop().time
        self._calls: set[_HandlerCall] = set()
        limits = parts.options.breaker
        self._breakers = (
            CircuitBreakers(limits) if limits and not parts.options.broadcasting else None
        )
        self._held: dict[str, deque[tuple[AssignedQueue, list[MessageExt]]]] = defaultdict(deque)
        self._held_failed: dict[str, deque[tuple[AssignedQueue, list[MessageExt]]]] = defaultdict(
            deque
        )
        if not parts.options.broadcasting:
            every_s = parts.options.consume_timeout_s / _SWEEPS
            parts.background.every(every_s, self._sweep, name="stuck handlers")

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Nothing is needed for a new queue: its messages start work by themselves."""

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Give newly pulled messages to handlers."""
        assigned.window.take(len(messages))
        size, groups = self._options.batch_size, [messages]
        if is_retry_topic(assigned.queue.topic):
            # it holds messages of several topics, and each topic has its own handler
            groups = [list(group) for _, group in groupby(messages, key=attrgetter("topic"))]
        for own in groups:
            for at in range(0, len(own), size):
                self._submit(assigned, own[at : at + size])

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until the handlers at work on the queue are done; False when they are not.

        What no handler has begun is skipped.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while assigned.in_flight and loop.time() < deadline:
            await asyncio.sleep(0.01)
        return not assigned.in_flight

    def blocked_queues(self) -> list[BlockedQueue]:
        """No queue ever stands still for one message."""
        return []

    def running_info(self) -> dict[str, str]:
        """Topics that have an outage."""
        return self._breakers.running_info() if self._breakers else {}

    def close(self) -> None:
        """Nothing is held beyond the queues."""

    def _submit(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Give messages to a handler, or hold them while their topic has an outage."""
        topic = messages[0].topic
        breaker = self._breakers.breaker_of(topic) if self._breakers else None
        if breaker is None or breaker.may_call(self._clock()):
            self._start(assigned, messages, breaker)
        else:
            self._held[topic].append((assigned, messages))

    def _release(self, topic: str) -> None:
        """Start what is held of a topic: all, or one for a try as long as the outage lasts.

        What has not failed yet goes first: it tells sooner that the outage is over.
        """
        held, failed = self._held[topic], self._held_failed[topic]
        breaker = self._breakers.breaker_of(topic) if self._breakers else None
        while (held or failed) and (breaker is None or breaker.may_call(self._clock())):
            assigned, messages = (held or failed).popleft()
            if not assigned.is_dropped:
                self._start(assigned, messages, breaker)
            elif breaker is not None:
                breaker.cancel_probe()

    def _start(
        self, assigned: AssignedQueue, messages: list[MessageExt], breaker: CircuitBreaker | None
    ) -> None:
        subscription = self._subscriptions.subscription_of(messages[0].topic)
        call = _HandlerCall(assigned, messages, subscription, self._ended, self._clock, breaker)
        assigned.in_flight += len(messages)
        self._calls.add(call)
        if subscription.is_async:
            self._tasks.submit(call.run_async())
        else:
            self._threads.submit(call.run, call.report_end)

    def _ended(self, call: _HandlerCall) -> None:
        self._calls.discard(call)
        assigned, outcome, messages = call.assigned, call.outcome, call.messages
        if call.expired:
            assigned.in_flight -= len(call.expired)
            messages = [message for message in messages if message not in call.expired]
        if outcome is None:
            assigned.in_flight -= len(messages)
            self._not_begun(call, messages)
            return
        is_out = self._is_outage(call, outcome)
        self._stats.ran(assigned.queue.topic, call.spent_s)
        done = len(call.messages) if outcome.is_done else outcome.done_count
        if done == len(call.messages):
            self._finish(assigned, messages)
        else:
            self._failed(assigned, messages, call.messages[:done], outcome, is_out=is_out)

    def _not_begun(self, call: _HandlerCall, messages: list[MessageExt]) -> None:
        """Hold what an outage kept from its handler."""
        if call.breaker is None:
            return
        if call.is_probe:
            call.breaker.cancel_probe()
        if messages and not call.assigned.is_dropped:
            self._held[messages[0].topic].append((call.assigned, messages))
        self._release(call.messages[0].topic)

    def _is_outage(self, call: _HandlerCall, outcome: HandlerOutcome) -> bool:
        """Report a call to its topic's breaker; whether a failure is an outage's."""
        breaker, topic = call.breaker, call.messages[0].topic
        if breaker is None or self._breakers is None:
            return False
        now, key = self._clock(), key_of(call.messages[0])
        if outcome.is_done:
            if breaker.record_success(key, now, is_probe=call.is_probe):
                self._breakers.log_closed(topic)
                self._release(topic)
            return breaker.excuses_failures(now)
        has_begun = breaker.record_failure(key, now, is_probe=call.is_probe)
        if has_begun:
            self._breakers.log_opened(topic, outcome.reason)
        if breaker.next_probe_at is not None and (has_begun or call.is_probe):
            loop = asyncio.get_running_loop()
            loop.call_at(breaker.next_probe_at, self._release, topic)
        return breaker.excuses_failures(now)

    def _failed(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        head: list[MessageExt],
        outcome: HandlerOutcome,
        *,
        is_out: bool,
    ) -> None:
        """Finish what a handler has done before it failed, and give the rest back."""
        done = [message for message in messages if message in head]
        rest = [message for message in messages if message not in head]
        if done:
            self._finish(assigned, done)
        self._stats.failed(assigned.queue.topic, len(rest))
        if self._options.broadcasting:  # there is nobody to bring them again
            log.warning("%d message(s) of %s are passed over", len(rest), assigned.queue)
            self._remove(assigned, rest)
        elif is_out and rest:  # it is not the messages that are at fault: no attempt is counted
            assigned.in_flight -= len(rest)
            self._held_failed[rest[0].topic].append((assigned, rest))
        elif rest:
            self._spawn(assigned, self._give_back(assigned, rest, outcome), "send back")

    def _finish(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        self._stats.done(assigned.queue.topic, len(messages))
        self._remove(assigned, messages)

    def _remove(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Take messages that need not come again from here out of the window."""
        assigned.in_flight -= len(messages)
        assigned.window.finish(messages)
        assigned.consumed_at = self._clock()
        self._note(assigned)

    def _note(self, assigned: AssignedQueue) -> None:
        if not assigned.is_dropped:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _give_back(
        self, assigned: AssignedQueue, messages: list[MessageExt], outcome: HandlerOutcome
    ) -> None:
        if assigned.is_dropped:  # whoever has the queue now gets them again anyway
            assigned.in_flight -= len(messages)
            return
        for message in messages:
            if await self._return(assigned, message, outcome):
                self._remove(assigned, [message])
            else:
                self._spawn(assigned, self._again(assigned, message), "retry in place")

    async def _return(
        self, assigned: AssignedQueue, message: MessageExt, outcome: HandlerOutcome
    ) -> bool:
        """Let a message come again, or meet the end its policy says; False when it could not."""
        queue, level, reason = assigned.queue, outcome.delay_level, outcome.reason
        policy = self._failure_actions.policy_of(
            self._subscriptions.subscription_of(message.topic), outcome
        )
        if policy is None:
            return await self._send_back.send_back(message, queue, level, reason)
        decision = decide(policy, message.reconsume_times + 1, 0, is_outage=False)
        if decision.action is FailureAction.NONE:
            return await self._send_back.send_back(message, queue, level, reason, UNLIMITED)
        return await self._failure_actions.apply(assigned, message, decision, outcome)

    async def _sweep(self) -> None:
        """Send back what holds up a queue since a handler has it for too long."""
        limit = self._clock() - self._options.consume_timeout_s
        stuck: dict[AssignedQueue, dict[int, _HandlerCall]] = defaultdict(dict)
        for call in self._calls:
            if 0 < call.began_at < limit and not call.assigned.is_dropped:
                own = stuck[call.assigned]
                own |= {message.queue_offset: call for message in call.messages}
        for assigned, calls in stuck.items():
            await self._expire(assigned, calls)

    async def _expire(self, assigned: AssignedQueue, calls: dict[int, _HandlerCall]) -> None:
        """Send the oldest messages of a queue back as long as they are stuck, at most 16."""
        reason = f"it was in its handler for more than {self._options.consume_timeout_s:g} s"
        for _ in range(_EXPIRED_MAX):
            head = assigned.window.commit_offset
            call = calls.pop(head, None)
            if call is None or assigned.is_dropped:
                return
            message = next(one for one in call.messages if one.queue_offset == head)
            log.warning("%s is sent back: %s", message, reason)
            if not await self._send_back.send_back(message, assigned.queue, _EXPIRED_LEVEL, reason):
                return
            call.expired.append(message)
            assigned.window.finish([message])
            self._note(assigned)

    async def _again(self, assigned: AssignedQueue, message: MessageExt) -> None:
        """Try a message here once more, since no broker took it back."""
        assigned.in_flight -= 1
        await asyncio.sleep(self._options.retry_in_place_s)
        if not assigned.is_dropped:
            message.reconsume_times += 1
            self._submit(assigned, [message])

    def _spawn(
        self, assigned: AssignedQueue, work: Coroutine[object, object, None], name: str
    ) -> None:
        self._background.spawn(self._supervised(assigned, work), name=f"{name} {assigned.queue}")

    async def _supervised(
        self, assigned: AssignedQueue, work: Coroutine[object, object, None]
    ) -> None:
        """Have the queue begun anew when work on its messages breaks off (which is logged)."""
        is_over = False
        try:
            await work
            is_over = True
        finally:
            if not is_over:
                self._broke_off(assigned)
