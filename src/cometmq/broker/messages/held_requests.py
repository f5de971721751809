"""Held requests (long polling): a pull that found nothing waits for an arrival or its deadline.

Owns who waits on which queue. Knows nothing of how a pull is answered: it calls `answer` once for
each request and sends the reply on the connection that the request came from. When one message
wakes many requests, they are answered in small batches, so that other work gets done in between.
Invariant: every held request leaves exactly once, by arrival, deadline or close. Bounds: in all,
per connection, and per connection and queue; beyond them a request is refused with SYSTEM_BUSY.
Java: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import Reject
from cometmq.net.dispatcher import answer_held_with
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Answer
    from cometmq.rules.tag_expressions import TagMatcher
    from cometmq.wire.command import Command
    from cometmq.wire.headers.pull import PullMessageRequestHeader

    MakeAnswer = Callable[[PullMessageRequestHeader, Command, Connection], Answer]
    Recheck = Callable[[int], bool]

HELD_PER_CONNECTION_MAX = 10_000
"""Held requests of one connection; a client has one for each of its queues."""

HELD_PER_KEY_MAX = 256
"""Held requests of one connection on one queue; a client has one for each of its groups."""

BATCH_MAX = 16
"""Held requests that one loop iteration rechecks or answers; other work comes in between."""

TIMER_STEP_S = 0.05
"""How late a deadline may be noticed, seconds. Deadlines share one timer: a timer for each request
would be four more objects for the garbage collector, which stops everything while it runs."""

_QueueKey = tuple[str, int]
_Key = TypeVar("_Key", int, tuple[str, int])


class HeldRequest:
    """One held request and what it takes to answer it. Few objects: there may be very many."""

    __slots__ = ("answer", "connection", "due", "end", "header", "match", "recheck", "request")

    def __init__(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        answer: MakeAnswer,
        match: TagMatcher | None,
        recheck: Recheck | None,
        due: int,
    ) -> None:
        self.header, self.request, self.connection, self.answer = (
            header,
            request,
            connection,
            answer,
        )
        self.match, self.recheck, self.due = match, recheck, due
        self.end = 0

    @property
    def key(self) -> _QueueKey:
        """The queue that it waits on."""
        return self.header.topic, self.header.queue_id


class HeldRequests:
    """All held requests, by queue and by connection. Belongs to the broker's loop."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._queues: dict[_QueueKey, set[HeldRequest]] = {}
        self._connections: dict[Connection, set[HeldRequest]] = {}
        self._per_connection_and_key: dict[tuple[Connection, _QueueKey], int] = {}
        self._due: dict[int, set[HeldRequest]] = {}
        self._checked_until = 0
        self._woken: deque[HeldRequest] = deque()
        self._arrived: dict[HeldRequest, None] = {}
        self._is_batch_due = self._is_timer_set = False
        self.count = 0

    def hold(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        answer: MakeAnswer,
        timeout_ms: int,
        match: TagMatcher | None = None,
        recheck: Recheck | None = None,
    ) -> None:
        """Hold the request until a message past its offset matches, or `timeout_ms` have passed.

        When a tags code matches, `recheck` is called with the queue's new end; it says whether any
        new message before that end is wanted. `answer` makes the reply. Raises Reject
        (SYSTEM_BUSY) when a bound is reached.
        """
        key = (header.topic, header.queue_id)
        mine, here = (
            self._connections.get(connection),
            self._per_connection_and_key.get((connection, key), 0),
        )
        if (
            self.count >= self.count_max
            or (mine and len(mine) >= HELD_PER_CONNECTION_MAX)
            or here >= HELD_PER_KEY_MAX
        ):
            raise Reject(
                ResponseCode.SYSTEM_BUSY,
                f"{self.count} pulls wait already, {len(mine or ())} of them yours, "
                f"{here} of these on this queue; pull later",
            )
        due = self._due_step(timeout_ms)
        held = HeldRequest(header, request, connection, answer, match, recheck, due)
        self._per_connection_and_key[(connection, key)] = here + 1
        if mine is None:
            mine = self._connections[connection] = set()
            connection.on_close(self._drop_connection)
        mine.add(held)
        self._queues.setdefault(key, set()).add(held)
        self._due.setdefault(due, set()).add(held)
        self.count += 1

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake the requests that wait for a message with this tags code."""
        waiting = self._queues.get((topic, queue_id))
        if not waiting:
            return
        for held in list(waiting):
            match = held.match
            if max_offset <= held.header.queue_offset or not (match is None or match(tags_code)):
                continue
            if held.recheck is None:
                self._wake(held)
            else:
                held.end = max_offset
                self._arrived[held] = None
                self._schedule_batch()

    def wake_topic(self, topic: str) -> None:
        """Answer all requests that wait on the topic: it changed or was deleted."""
        for key in [key for key in self._queues if key[0] == topic]:
            for held in list(self._queues.get(key, ())):
                self._wake(held)

    def close(self) -> None:
        """Answer all requests now, as at their deadline."""
        for waiting in list(self._queues.values()):
            for held in list(waiting):
                self._remove(held)
                _answer(held)
        while self._woken:
            _answer(self._woken.popleft())

    def _wake(self, held: HeldRequest) -> None:
        self._remove(held)
        self._woken.append(held)
        self._schedule_batch()

    def _schedule_batch(self) -> None:
        """Answer in the next loop iteration: several arrivals make one pull."""
        if not self._is_batch_due:
            self._is_batch_due = True
            asyncio.get_running_loop().call_soon(self._run_batch)

    def _run_batch(self) -> None:
        self._is_batch_due = False
        for _ in range(BATCH_MAX):
            if self._woken:
                held = self._woken.popleft()
            elif self._arrived:
                held = next(iter(self._arrived))
                del self._arrived[held]
                if held.recheck is None or not held.recheck(held.end):
                    continue
                self._remove(held)
            else:
                return
            _answer(held)
        if self._woken or self._arrived:
            self._schedule_batch()

    def _due_step(self, timeout_ms: int) -> int:
        """The number of the timer step after `timeout_ms` from now; starts the timer if needed."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._is_timer_set:
            self._is_timer_set, self._checked_until = True, int(now / TIMER_STEP_S)
            loop.call_later(TIMER_STEP_S, self._check_deadlines)
        return int((now + timeout_ms / 1000) / TIMER_STEP_S) + 1

    def _check_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        until = int(loop.time() / TIMER_STEP_S)
        for due in range(self._checked_until, until + 1):
            for held in list(self._due.get(due, ())):
                self._wake(held)
        self._checked_until, self._is_timer_set = until, self.count > 0
        if self._is_timer_set:
            loop.call_later(TIMER_STEP_S, self._check_deadlines)

    def _remove(self, held: HeldRequest) -> None:
        key = held.key
        _discard(self._queues, key, held)
        _discard(self._due, held.due, held)
        mine = self._connections.get(held.connection)
        if mine is not None:
            mine.discard(held)
        both = (held.connection, key)
        self._per_connection_and_key[both] -= 1
        if not self._per_connection_and_key[both]:
            del self._per_connection_and_key[both]
        self._arrived.pop(held, None)
        self.count -= 1

    def _drop_connection(self, connection: Connection) -> None:
        for held in self._connections.pop(connection, set()):
            self._remove(held)


def _answer(held: HeldRequest) -> None:
    make = partial(held.answer, held.header, held.request, held.connection)
    answer_held_with(held.connection, held.request, make)


def _discard(table: dict[_Key, set[HeldRequest]], key: _Key, held: HeldRequest) -> None:
    found = table[key]
    found.discard(held)
    if not found:
        del table[key]
