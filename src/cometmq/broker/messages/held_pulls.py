"""Parked pulls: requests that found nothing and wait for an arrival or for their deadline.

Owns who waits where; refuses to know how a pull is answered: it calls `again` once for each request
and hands its reply to the connection it came from, under the opaque it came with. Many that one
message wakes are answered a few at a time, so that others come in between.
Invariant: every parked request leaves exactly once, by arrival, deadline or close. Bounds: in all,
per connection, and per connection and queue; beyond them parking is refused with SYSTEM_BUSY.
Java: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import Reject
from cometmq.net.dispatcher import finish_with
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.net.dispatcher import Made
    from cometmq.rules.tag_expressions import Match
    from cometmq.wire.command import Command
    from cometmq.wire.headers.pull import PullMessageRequestHeader

    Again = Callable[[PullMessageRequestHeader, Command, Connection], Made]
    Look = Callable[[int], bool]

HOLDS_PER_PEER_MAX = 10_000
"""Parked pulls of one connection; a client parks one for each of its queues."""

HOLDS_PER_QUEUE_MAX = 256
"""Parked pulls of one connection on one queue; a client parks one for each of its groups."""

TURN_MAX = 16
"""Parked pulls that are looked at or answered before others get their turn."""

TICK_S = 0.05
"""How late a deadline may be seen, seconds. Deadlines share one timer: a timer for each parked pull
would be four more objects for the garbage collector, which stops everything while it looks."""

_QueueKey = tuple[str, int]
_Key = TypeVar("_Key", int, tuple[str, int])


class Hold:
    """One parked request and what it takes to answer it. Few objects: there may be very many."""

    __slots__ = ("again", "connection", "due", "end", "header", "look", "match", "request")

    def __init__(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        again: Again,
        match: Match | None,
        look: Look | None,
        due: int,
    ) -> None:
        self.header, self.request, self.connection, self.again = header, request, connection, again
        self.match, self.look, self.due = match, look, due
        self.end = 0

    @property
    def key(self) -> _QueueKey:
        """The queue that it waits on."""
        return self.header.topic, self.header.queue_id


class Holds:
    """All parked pulls, by queue and by connection. Lives on the broker's loop."""

    def __init__(self, holds_max: int) -> None:
        self.holds_max = holds_max
        self._queues: dict[_QueueKey, set[Hold]] = {}
        self._connections: dict[Connection, set[Hold]] = {}
        self._of_both: dict[tuple[Connection, _QueueKey], int] = {}
        self._due: dict[int, set[Hold]] = {}
        self._tick_at = 0
        self._woken: deque[Hold] = deque()
        self._arrived: dict[Hold, None] = {}
        self._is_turn_due = self._is_ticking = False
        self.parked = 0

    def park(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        again: Again,
        timeout_ms: int,
        match: Match | None = None,
        look: Look | None = None,
    ) -> None:
        """Keep the request until something past its offset matches, or `timeout_ms` are over.

        What has a matching tags code is then shown to `look`, which gets the queue's new end and
        says whether anything new before it is wanted. `again` makes the answer. Raises Reject
        (SYSTEM_BUSY) when a bound is reached.
        """
        key = (header.topic, header.queue_id)
        mine, here = self._connections.get(connection), self._of_both.get((connection, key), 0)
        if (
            self.parked >= self.holds_max
            or (mine and len(mine) >= HOLDS_PER_PEER_MAX)
            or here >= HOLDS_PER_QUEUE_MAX
        ):
            raise Reject(
                ResponseCode.SYSTEM_BUSY,
                f"{self.parked} pulls wait already, {len(mine or ())} of them yours, "
                f"{here} of these on this queue; pull later",
            )
        due = self._tick_after(timeout_ms)
        hold = Hold(header, request, connection, again, match, look, due)
        self._of_both[(connection, key)] = here + 1
        if mine is None:
            mine = self._connections[connection] = set()
            connection.on_close(self._drop_connection)
        mine.add(hold)
        self._queues.setdefault(key, set()).add(hold)
        self._due.setdefault(due, set()).add(hold)
        self.parked += 1

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake those whom a message of this code concerns; the first are answered in this tick."""
        waiting = self._queues.get((topic, queue_id))
        if not waiting:
            return
        for hold in list(waiting):
            match = hold.match
            if max_offset <= hold.header.queue_offset or not (match is None or match(tags_code)):
                continue
            if hold.look is None:
                self._wake(hold)
            else:
                hold.end = max_offset
                self._arrived[hold] = None
                self._soon()

    def wake_topic(self, topic: str) -> None:
        """Answer all who wait on the topic: it changed or is gone."""
        for key in [key for key in self._queues if key[0] == topic]:
            for hold in list(self._queues.get(key, ())):
                self._wake(hold)

    def close(self) -> None:
        """Answer everybody, as at a deadline."""
        for waiting in list(self._queues.values()):
            for hold in list(waiting):
                self._take_out(hold)
                _answer(hold)
        while self._woken:
            _answer(self._woken.popleft())

    def _wake(self, hold: Hold) -> None:
        self._take_out(hold)
        self._woken.append(hold)
        self._soon()

    def _soon(self) -> None:
        """Have a turn in this tick: several arrivals make one pull."""
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        for _ in range(TURN_MAX):
            if self._woken:
                hold = self._woken.popleft()
            elif self._arrived:
                hold = next(iter(self._arrived))
                del self._arrived[hold]
                if hold.look is None or not hold.look(hold.end):
                    continue
                self._take_out(hold)
            else:
                return
            _answer(hold)
        if self._woken or self._arrived:
            self._soon()

    def _tick_after(self, timeout_ms: int) -> int:
        """The first tick after a time from now; sees to it that ticks come."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._is_ticking:
            self._is_ticking, self._tick_at = True, int(now / TICK_S)
            loop.call_later(TICK_S, self._tick)
        return int((now + timeout_ms / 1000) / TICK_S) + 1

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        until = int(loop.time() / TICK_S)
        for due in range(self._tick_at, until + 1):
            for hold in list(self._due.get(due, ())):
                self._wake(hold)
        self._tick_at, self._is_ticking = until, self.parked > 0
        if self._is_ticking:
            loop.call_later(TICK_S, self._tick)

    def _take_out(self, hold: Hold) -> None:
        key = hold.key
        _discard(self._queues, key, hold)
        _discard(self._due, hold.due, hold)
        mine = self._connections.get(hold.connection)
        if mine is not None:
            mine.discard(hold)
        both = (hold.connection, key)
        self._of_both[both] -= 1
        if not self._of_both[both]:
            del self._of_both[both]
        self._arrived.pop(hold, None)
        self.parked -= 1

    def _drop_connection(self, connection: Connection) -> None:
        for hold in self._connections.pop(connection, set()):
            self._take_out(hold)


def _answer(hold: Hold) -> None:
    make = partial(hold.again, hold.header, hold.request, hold.connection)
    finish_with(hold.connection, hold.request, make)


def _discard(table: dict[_Key, set[Hold]], key: _Key, hold: Hold) -> None:
    found = table[key]
    found.discard(hold)
    if not found:
        del table[key]
