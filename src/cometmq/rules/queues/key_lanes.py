"""Lanes of one queue: each key goes in its own order, all keys side by side.

Owns which message may be handled next; knows nothing of handlers and offsets to commit; time is an
argument. Invariants: at most one batch of a lane is in flight; a message is finished only after all
of its lane before it; a barrier is in flight alone, after all before it and before all behind it.
A lane is gone (empty), ready, in flight, or resting until a time.
Java: nothing alike; ConsumeMessageOrderlyService has one lane a queue
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from cometmq.rules.queues.process_queue import QueuedMessage

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

M = TypeVar("M", bound=QueuedMessage)

BARRIER = None
"""The key of a message that nothing of its queue may pass, and that passes nothing."""


class KeyLane(Generic[M]):
    """The unfinished messages of one key that were let in, oldest first."""

    __slots__ = (
        "failing_since_ms",
        "failure_reason",
        "is_in_flight",
        "key",
        "one_by_one_until",
        "waiting",
    )

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.waiting: deque[M] = deque()
        """All that is not finished; what is in flight is its head."""
        self.is_in_flight = False
        self.one_by_one_until = -1
        """Up to which offset messages are handled one at a time, since a batch has failed."""
        self.failure_reason = ""
        """Why its head failed last; `failing_since_ms` (epoch) is since when: for operators."""
        self.failing_since_ms = 0

    @property
    def has_failed(self) -> bool:
        """Whether its head was in a call that failed."""
        return bool(self.waiting) and self.waiting[0].queue_offset <= self.one_by_one_until

    def head(self, most: int) -> list[M]:
        """Up to `most` of the oldest messages; they stay where they are."""
        return list(islice(self.waiting, most))


class KeyLanes(Generic[M]):
    """The lanes of one queue. One owner: the client's loop."""

    __slots__ = ("_held", "_is_barred", "_lanes", "_numbers", "_open", "_ready", "_resting")

    def __init__(self) -> None:
        self._lanes: dict[Hashable, KeyLane[M]] = {}
        self._ready: deque[KeyLane[M]] = deque()
        self._resting: list[tuple[float, int, KeyLane[M]]] = []
        self._numbers = count()  # two lanes that rest equally long are not compared
        self._held: deque[tuple[Hashable, M]] = deque()  # behind a barrier, or one themselves
        self._open = 0  # messages let in and not finished
        self._is_barred = False  # whether the one message let in is a barrier

    @property
    def lanes(self) -> Iterable[KeyLane[M]]:
        """The lanes with unfinished messages, in no order."""
        return self._lanes.values()

    @property
    def count(self) -> int:
        """Messages not finished, those behind a barrier included."""
        return self._open + len(self._held)

    def put(self, key: Hashable, message: M) -> None:
        """Take the queue's next message; the key BARRIER lets it pass nothing and nothing pass."""
        if self._held or self._is_barred or (key is BARRIER and self._open):
            self._held.append((key, message))
        else:
            self._let_in(key, message)

    def take(self, now: float, *, is_probe: bool = False) -> KeyLane[M] | None:
        """Take the lane that has been ready longest; None when no lane is ready.

        For a probe a lane whose head has not failed yet goes before all others.
        """
        self._wake(now)
        ready = self._ready
        if not ready:
            return None
        if is_probe:
            ready.rotate(-next((at for at, lane in enumerate(ready) if not lane.has_failed), 0))
        lane = ready.popleft()
        assert lane.waiting, "a ready lane has messages"
        assert not lane.is_in_flight, "a lane in flight is not ready"
        lane.is_in_flight = True
        return lane

    def finish(self, lane: KeyLane[M], number: int) -> None:
        """Remove the first `number` messages of a lane in flight; it stays in flight."""
        assert lane.is_in_flight, "only what is in flight can be finished"
        assert 0 <= number <= len(lane.waiting), "more was finished than was there"
        for _ in range(number):
            lane.waiting.popleft()
        self._open -= number
        assert self._open >= 0, "more was finished than was let in"
        if not self._open:
            self._is_barred = False
            if self._held:
                self._let_held_in()

    def release(self, lane: KeyLane[M], rest_until: float | None = None) -> None:
        """Release a lane in flight: it is ready again, or rests; an empty one is gone."""
        assert lane.is_in_flight, "only what is in flight can be released"
        lane.is_in_flight = False
        if not lane.waiting:
            del self._lanes[lane.key]
        elif rest_until is None:
            self._ready.append(lane)
        else:
            heappush(self._resting, (rest_until, next(self._numbers), lane))

    def has_untried(self, now: float) -> bool:
        """Whether a lane is ready whose head has not failed."""
        self._wake(now)
        return any(not lane.has_failed for lane in self._ready)

    def next_wake_at(self) -> float | None:
        """When the first resting lane is ready again; None when none rests."""
        return self._resting[0][0] if self._resting else None

    def _wake(self, now: float) -> None:
        while self._resting and self._resting[0][0] <= now:
            self._ready.append(heappop(self._resting)[2])

    def _let_in(self, key: Hashable, message: M) -> None:
        assert not self._is_barred, "nothing passes a barrier"
        assert key is not BARRIER or not self._open, "a barrier passes nothing"
        self._is_barred = key is BARRIER
        self._open += 1
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = KeyLane(key)
            self._ready.append(lane)
        lane.waiting.append(message)

    def _let_held_in(self) -> None:
        """Let in what waited for all others to finish: a barrier, or all up to the next one."""
        held = self._held
        self._let_in(*held.popleft())
        while held and not self._is_barred and held[0][0] is not BARRIER:
            self._let_in(*held.popleft())
