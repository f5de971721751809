"""Held requests (long polling): requests that wait for an event or for their deadline.

Owns who waits on which keys. Knows nothing of what a key means, what wakes a request or how it is
answered: each kind of request is a subclass of HeldRequest (`pull_long_polling` has the pulls).
When one event concerns many requests, they are asked and answered in small batches, so that other
work gets done in between; what happens to their key meanwhile they are asked about in one further
round. Invariant: every held request leaves exactly once, by event, deadline or close, or unanswered
with its connection. Bounds: in all, per key, per connection, and per connection and key. At the
first two (`held_counts`) the address that has most makes room for others: its oldest request is
answered as at its deadline. Else a request is refused with SYSTEM_BUSY.
Java: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from cometmq.broker.pulls.held_counts import HeldRequestCounts
from cometmq.errors import Reject
from cometmq.net.dispatcher import answer_held_with
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Hashable, Iterable

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Answer
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

HELD_PER_CONNECTION_MAX = 10_000
"""Held requests of one connection; a client has one for each of its queues."""

HELD_PER_KEY_MAX = 256
"""Held requests of one connection on one key; a client has one for each of its groups."""

BATCH_MAX = 16
"""Held requests that one loop iteration rechecks or answers; other work comes in between."""

ASKED_AT_ONCE_MAX = 64
"""Requests on one key that an event asks at once; of more so many are asked in an iteration."""

BATCH_S = 0.001
"""Time after which a batch of rechecks is enough, seconds."""

EVENTS_MAX = 1024
"""Different events on one key that wait for a round; with more all requests on it are answered."""

HELD_BYTES_MAX = 128 * 1024 * 1024
"""Bytes that held requests keep besides their fixed size: filters, for the most part."""

TIMER_STEP_S = 0.05
"""How late a deadline may be noticed, seconds. Deadlines share one timer: a timer for each request
would be four more objects for the garbage collector, which stops everything while it runs."""

_T = TypeVar("_T")
_NOT_HELD = -1


class WakeDecision(Enum):
    """What an event means to a held request."""

    IGNORE = 0
    RECHECK = 1
    """It may concern the request; `recheck` finds out, in a later batch."""
    ANSWER = 2


class HeldRequest(ABC):
    """One request that waits, and what it takes to answer it. Few objects: there may be many."""

    __slots__ = ("connection", "deadline_step", "kept_bytes", "request")

    def __init__(self, request: Command, connection: Connection) -> None:
        self.request = request
        self.connection = connection
        self.deadline_step = _NOT_HELD
        """The timer step at which it is answered in any case; HeldRequests sets it."""
        self.kept_bytes = 0
        """What it keeps that may be large; must not change while it is held."""

    @property
    @abstractmethod
    def keys(self) -> tuple[Hashable, ...]:
        """What it waits on; must not change while it is held."""

    @abstractmethod
    def on_event(self, event: object) -> WakeDecision:
        """Decide what an event on one of the keys means. Must be cheap and must not raise."""

    def recheck(self) -> bool:
        """Whether the events that said RECHECK wake the request; may read the store.

        What it raises is logged and wakes the request: `answer` then says what is wrong.
        """
        return True

    @abstractmethod
    def answer(self) -> Answer | Awaitable[Answer]:
        """Make the response; called once, when the request is no longer held.

        An awaitable for what must be read from the disk first.
        """


class _Round:
    """Who is still to be asked about some events on a key, and what has happened since."""

    __slots__ = ("events", "later", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[HeldRequest] = deque()
        self.events: tuple[object, ...] = ()
        self.later: dict[Hashable, object] = {}


class HeldRequests:
    """All held requests, by key and by connection. Belongs to the broker's loop."""

    def __init__(self, count_max: int, per_key_max: int) -> None:
        self.count = 0
        self._shares: HeldRequestCounts[HeldRequest] = HeldRequestCounts(count_max, per_key_max)
        self._kept_bytes = 0
        self._by_key: dict[Hashable, set[HeldRequest]] = {}
        self._by_connection: dict[Connection, set[HeldRequest]] = {}
        self._by_deadline: dict[int, set[HeldRequest]] = {}
        self._per_connection_and_key: dict[tuple[Connection, Hashable], int] = {}
        self._woken: deque[HeldRequest] = deque()
        """To be answered, and no longer held."""
        self._due: deque[list[HeldRequest]] = deque()
        """Still held; their deadline has passed."""
        self._to_recheck: OrderedDict[HeldRequest, None] = OrderedDict()
        """Still held; in the order of their events."""
        self._rounds: dict[Hashable, _Round] = {}
        self._warnings = RateLimitedLog(log)
        self._is_batch_due = False
        self._timer: asyncio.TimerHandle | None = None
        """Goes off at the first deadline, so that nothing runs while no deadline is near."""
        self._timer_step = self._checked_until = 0

    def set_bounds(self, count_max: int, per_key_max: int) -> None:
        """Work with these bounds from now on."""
        self._shares.set_bounds(count_max, per_key_max)

    def hold(self, held: HeldRequest, timeout_ms: int) -> None:
        """Hold the request until an event wakes it, or `timeout_ms` have passed.

        Raises Reject (SYSTEM_BUSY) when a bound is reached.
        """
        assert held.deadline_step == _NOT_HELD, "a request is held once"
        connection, keys = held.connection, held.keys
        of_connection = self._by_connection.get(connection)
        self._check_bounds(connection, keys, len(of_connection or ()), held.kept_bytes)
        self._make_room(connection.address, keys)
        if of_connection is None:
            of_connection = self._by_connection[connection] = set()
            connection.on_close(self._drop_connection)
        of_connection.add(held)
        for key in keys:
            self._by_key.setdefault(key, set()).add(held)
            pair = (connection, key)
            self._per_connection_and_key[pair] = self._per_connection_and_key.get(pair, 0) + 1
        self._shares.add(held, connection.address, keys)
        held.deadline_step = self._step_after(timeout_ms)
        self._by_deadline.setdefault(held.deadline_step, set()).add(held)
        self._kept_bytes += held.kept_bytes
        self.count += 1

    def has_key(self, key: Hashable) -> bool:
        """Whether any request waits on the key."""
        return key in self._by_key

    def waiting(self, key: Hashable) -> Collection[HeldRequest]:
        """The requests that wait on the key; do not keep it."""
        return self._by_key.get(key, ())

    def notify(self, key: Hashable, event: object, kind: Hashable = None) -> None:
        """Show an event to all requests that wait on the key; those it wakes are answered soon.

        Of events of one `kind` that wait to be shown, the last one stands for all.
        """
        waiting = self._by_key.get(key, ())
        if len(waiting) <= ASKED_AT_ONCE_MAX and key not in self._rounds:
            for held in list(waiting):
                self._ask(held, (event,))
            return
        later = self._rounds.setdefault(key, _Round()).later
        later[kind] = event
        if len(later) > EVENTS_MAX:
            del self._rounds[key]
            self._due.append(list(waiting))
        self._schedule_batch()

    def wake_keys(self, keys: Iterable[Hashable]) -> None:
        """Answer all requests that wait on one of these keys: what it names was deleted, say."""
        for key in keys:
            if waiting := self._by_key.get(key):
                self._due.append(list(waiting))
                self._schedule_batch()

    def close(self) -> None:
        """Answer all requests now, as at their deadline."""
        for all_of_one in list(self._by_connection.values()):
            for held in list(all_of_one):
                self._remove(held)
                self._woken.append(held)
        while self._woken:
            _finish(self._woken.popleft())
        assert not self.count, f"{self.count} requests are held after the close"

    def _check_bounds(
        self,
        connection: Connection,
        keys: tuple[Hashable, ...],
        of_connection: int,
        kept_bytes: int,
    ) -> None:
        of_key = max([self._per_connection_and_key.get((connection, key), 0) for key in keys])
        if (
            of_connection >= HELD_PER_CONNECTION_MAX
            or of_key >= HELD_PER_KEY_MAX
            or self._kept_bytes + kept_bytes > HELD_BYTES_MAX
        ):
            raise Reject(
                ResponseCode.SYSTEM_BUSY,
                f"{self.count} pulls wait already, {of_connection} of them yours, "
                f"{of_key} of these on this queue; pull later",
            )

    def _make_room(self, address: str, keys: tuple[Hashable, ...]) -> None:
        """Wake the oldest request of whoever has most, at the bounds in all and per key."""
        while (full := self._shares.full_scope(keys)) is not None:
            oldest = self._shares.oldest_of_largest(full, address)
            if oldest is None:
                raise Reject(
                    ResponseCode.SYSTEM_BUSY,
                    f"{self.count} pulls wait already, and no address has more than yours here; "
                    "pull later",
                )
            self._wake(oldest)

    def _ask(self, held: HeldRequest, events: tuple[object, ...]) -> None:
        for event in events:
            wake = held.on_event(event)
            if wake is WakeDecision.ANSWER:
                self._wake(held)
                return
            if wake is WakeDecision.RECHECK:
                self._to_recheck[held] = None
                self._schedule_batch()

    def _wake(self, held: HeldRequest) -> None:
        self._remove(held)
        self._woken.append(held)
        self._schedule_batch()

    def _schedule_batch(self) -> None:
        """Answer in the next loop iteration: several events make one response."""
        if not self._is_batch_due:
            self._is_batch_due = True
            asyncio.get_running_loop().call_soon(self._run_batch)

    def _run_batch(self) -> None:
        self._is_batch_due = False
        self._take_due()
        time = asyncio.get_running_loop().time
        until = time() + BATCH_S
        for _ in range(BATCH_MAX):
            if self._woken:
                held = self._woken.popleft()
            elif self._to_recheck:
                held, _ = self._to_recheck.popitem(last=False)
                if not self._is_woken(held):
                    if time() > until:
                        break
                    continue
                self._remove(held)
            else:
                break
            _finish(held)
        if self._rounds:
            self._ask_some()
        if self._woken or self._to_recheck or self._rounds or self._due:
            self._schedule_batch()

    def _take_due(self) -> None:
        """Wake as many of those whose time is over as one batch answers."""
        while self._due and len(self._woken) < BATCH_MAX:
            due = self._due[0]
            if not due:
                self._due.popleft()
                continue
            held = due.pop()
            if held.deadline_step != _NOT_HELD:
                self._remove(held)
                self._woken.append(held)

    def _ask_some(self) -> None:
        """Go on with the first round; it goes to the end when its turn is over."""
        key, its = next(iter(self._rounds.items()))
        if not its.waiting:
            its.events, its.later = tuple(its.later.values()), {}
            its.waiting.extend(self._by_key.get(key, ()))
        left = ASKED_AT_ONCE_MAX
        while its.waiting and left > 0:
            held = its.waiting.popleft()
            left -= len(its.events)
            if held.deadline_step != _NOT_HELD:
                self._ask(held, its.events)
        del self._rounds[key]
        if its.waiting or its.later:
            self._rounds[key] = its

    def _is_woken(self, held: HeldRequest) -> bool:
        """What `recheck` says; the request is woken, and the others not harmed, where it fails."""
        try:
            return held.recheck()
        except Exception:  # noqa: BLE001 - of whatever it reads: a disk that fails, say
            text = "a request of %s could not be rechecked, it is answered now"
            self._warnings.warning(text, held.connection.addr, exc_info=True)
            return True

    def _step_after(self, timeout_ms: int) -> int:
        """The number of the timer step after `timeout_ms` from now, which the timer will see."""
        loop = asyncio.get_running_loop()
        step = int((loop.time() + timeout_ms / 1000) / TIMER_STEP_S) + 1
        if self._timer is None or step < self._timer_step:
            self._set_timer(loop, step)
        return step

    def _set_timer(self, loop: asyncio.AbstractEventLoop, step: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_step = (
            loop.call_at(step * TIMER_STEP_S, self._check_deadlines),
            step,
        )

    def _check_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        until = int(loop.time() / TIMER_STEP_S)
        for step in sorted(self._by_deadline):
            if step > until:
                break
            if step > self._checked_until:  # the others are due already and leave batch by batch
                self._due.append(list(self._by_deadline[step]))
                self._schedule_batch()
        self._checked_until, self._timer = until, None
        later = [step for step in self._by_deadline if step > until]
        if later:
            self._set_timer(loop, min(later))

    def _remove(self, held: HeldRequest) -> None:
        """Hold a request no longer: every way out goes through here, once."""
        assert held.deadline_step != _NOT_HELD, "a request leaves once"
        connection = held.connection
        for key in held.keys:
            _discard(self._by_key, key, held)
            pair = (connection, key)
            self._per_connection_and_key[pair] -= 1
            if not self._per_connection_and_key[pair]:
                del self._per_connection_and_key[pair]
        _discard(self._by_deadline, held.deadline_step, held)
        self._shares.remove(held, connection.address, held.keys)
        self._kept_bytes -= held.kept_bytes
        # An empty set stays until the connection closes: on_close is registered once.
        of_connection = self._by_connection.get(connection)
        if of_connection is not None:
            of_connection.discard(held)
        self._to_recheck.pop(held, None)
        held.deadline_step = _NOT_HELD
        self.count -= 1

    def _drop_connection(self, connection: Connection) -> None:
        for held in self._by_connection.pop(connection, set()):
            self._remove(held)


def _finish(held: HeldRequest) -> None:
    answer_held_with(held.connection, held.request, held.answer)


def _discard(table: dict[_T, set[HeldRequest]], key: _T, held: HeldRequest) -> None:
    found = table[key]
    found.remove(held)
    if not found:
        del table[key]
