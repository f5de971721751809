"""One queue handled by key: its window, its lanes, its journal and its circuit breaker together.

Owns what happens to a message from pull to finish; knows nothing of handlers, files and brokers;
time is an argument, in seconds. Invariants: a message leaves the window only when it is done or was
given up by its policy; what the journal has as finished has left the window; a message is handled
only after all of its key before it are finished; without a key (a barrier), after all before it.
Java: nothing alike
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from cometmq.rules.failures.failure_policy import FailureAction, decide
from cometmq.rules.queues.key_lanes import BARRIER, KeyLanes
from cometmq.rules.queues.process_queue import QueuedMessage

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from cometmq.rules.failures.circuit_breaker import CircuitBreaker
    from cometmq.rules.failures.failure_policy import FailureDecision, FailurePolicy
    from cometmq.rules.queues.key_lanes import KeyLane
    from cometmq.rules.queues.offset_journal import OffsetJournal
    from cometmq.rules.queues.process_queue import ProcessQueue


class KeyedMessage(QueuedMessage, Protocol):
    """What a key queue needs of a message."""

    store_ms: int
    reconsume_times: int


M = TypeVar("M", bound=KeyedMessage)


class LaneBatch(Generic[M]):
    """Messages of one lane in flight, oldest first."""

    __slots__ = ("is_probe", "lane", "messages")

    def __init__(self, lane: KeyLane[M], messages: list[M], *, is_probe: bool) -> None:
        self.lane = lane
        self.messages = messages
        self.is_probe = is_probe

    @property
    def key(self) -> Hashable:
        """The key as the breaker counts it: each barrier is one of its own."""
        return self.lane.key if self.lane.key is not BARRIER else self.messages[0].queue_offset


class ByKeyProcessQueue(Generic[M]):
    """The work on one queue. One owner: the client's loop."""

    __slots__ = (
        "_journal",
        "_lanes",
        "_probed_at",
        "_top_ms",
        "_unwritten_failures",
        "_unwritten_finished",
        "breaker",
        "window",
    )

    def __init__(
        self, window: ProcessQueue[M], journal: OffsetJournal, breaker: CircuitBreaker
    ) -> None:
        self.window = window
        self._journal = journal
        self.breaker = breaker
        self._lanes: KeyLanes[M] = KeyLanes()
        self._unwritten_finished: list[int] = []  # finished, and not in the journal yet
        self._top_ms = 0
        self._probed_at = 0.0
        self._unwritten_failures: dict[int, M] = {}  # failed, and not in the journal yet

    def add_messages(self, messages: Iterable[tuple[Hashable, M]]) -> None:
        """Take what was pulled, with its keys; leave out what was finished before the start.

        What had failed before the start keeps the count of its failures.
        """
        known, had_failures = [], bool(self._journal.failures)
        for key, message in messages:
            if self._journal.was_finished(message.queue_offset, message.store_ms):
                known.append(message)
            else:
                if had_failures:
                    failures = self._journal.failures_of(message.queue_offset, message.store_ms)
                    message.reconsume_times = max(message.reconsume_times, failures)
                self._lanes.put(key, message)
        self.window.finish(known)

    def take_batch(self, most: int, now: float) -> LaneBatch[M] | None:
        """Take up to `most` messages of the next lane; None when none may be handled now."""
        assert most >= 1, "a batch has a message"
        breaker = self.breaker
        if not breaker.may_call(now):
            return None
        is_probe = breaker.is_open
        lane = self._lanes.take(now, is_probe=is_probe)
        if lane is None:
            if is_probe:
                breaker.cancel_probe()
            return None
        is_alone = is_probe or lane.waiting[0].queue_offset <= lane.one_by_one_until
        if is_probe:
            self._probed_at = now
        return LaneBatch(lane, lane.head(1 if is_alone else most), is_probe=is_probe)

    def probe_rank(self, now: float) -> tuple[bool, float]:
        """Sort the queues under one breaker by this for its next probe.

        First those with a key that did not fail, among them the one that probed longest ago.
        """
        return not self._lanes.has_untried(now), self._probed_at

    def finish(self, batch: LaneBatch[M], number: int) -> None:
        """Remove the first messages of a batch: they are done, or were given up."""
        assert 0 <= number <= len(batch.messages), "more was finished than was taken"
        messages = batch.messages[:number]
        del batch.messages[:number]
        committed = self.window.commit_offset
        self._lanes.finish(batch.lane, number)
        self.window.finish(messages)
        assert self.window.commit_offset >= committed, "the commit offset went back"
        for message in messages:
            self._unwritten_finished.append(message.queue_offset)
            self._unwritten_failures.pop(message.queue_offset, None)
            self._top_ms = max(self._top_ms, message.store_ms)
        batch.lane.failure_reason = ""
        batch.lane.failing_since_ms = 0

    def record_success(self, batch: LaneBatch[M], number: int, now: float, calls: int = 1) -> bool:
        """Note that the handler is done with the first messages, in so many calls that went well.

        Returns whether an outage ended.
        """
        key = batch.key
        self.finish(batch, number)
        return self.breaker.record_success(key, now, is_probe=batch.is_probe, calls=calls)

    def record_failure(
        self,
        batch: LaneBatch[M],
        number: int,
        policy: FailurePolicy,
        rest_ms: int,
        now: float,
        *,
        is_handlers: bool = True,
    ) -> tuple[FailureDecision, bool]:
        """Decide about a call that failed on its first messages; also, whether an outage began.

        A batch is tried again message by message, and what fails in an outage costs no attempt,
        unless that lasts too long. A failure that is no handler's says nothing of outages.
        """
        assert 1 <= number <= len(batch.messages), "a call fails on messages it was given"
        first, lane = batch.messages[0], batch.lane
        lane.one_by_one_until = max(lane.one_by_one_until, batch.messages[number - 1].queue_offset)
        breaker, has_begun = self.breaker, False
        if is_handlers:
            has_begun = breaker.record_failure(batch.key, now, is_probe=batch.is_probe)
        elif batch.is_probe:
            breaker.cancel_probe()
        is_outage = is_handlers and breaker.excuses_failures(now)
        failures = max(first.reconsume_times, 0) + 1  # a sender may have set any number
        decision = decide(policy, failures, rest_ms, is_outage=is_outage or number > 1)
        if decision.action is FailureAction.NONE and number == 1 and not is_outage:
            first.reconsume_times = failures
            self._unwritten_failures[first.queue_offset] = first
        return decision, has_begun

    def release(self, batch: LaneBatch[M], rest_until: float | None = None) -> None:
        """Release a batch; its lane goes on, at once or at a time."""
        self._lanes.release(batch.lane, rest_until)

    @property
    def lanes(self) -> Iterable[KeyLane[M]]:
        """The lanes with messages, in no order."""
        return self._lanes.lanes

    def next_wake_at(self) -> float | None:
        """When the first resting lane goes on; None when none rests."""
        return self._lanes.next_wake_at()

    def blocking_lane(self) -> KeyLane[M] | None:
        """The lane whose head holds back the commit, if that head has failed."""
        offset = self.window.commit_offset
        for lane in self._lanes.lanes:
            if lane.failure_reason and lane.waiting and lane.waiting[0].queue_offset == offset:
                return lane
        return None

    def take_journal_records(self) -> bytes:
        """What to append to the journal now; empty when nothing was finished or failed since."""
        records = [
            self._journal.record_failure(offset, one.reconsume_times, one.store_ms)
            for offset, one in self._unwritten_failures.items()
        ]
        self._unwritten_failures.clear()
        if self._unwritten_finished:
            base = self.window.commit_offset
            records.append(
                self._journal.record_finished(self._unwritten_finished, base, self._top_ms)
            )
            self._unwritten_finished.clear()
        return b"".join(records)
