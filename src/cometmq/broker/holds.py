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
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.edge import finish_with
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.edge import Reply
    from cometmq.net.peer import Peer
    from cometmq.rules.tags import Match
    from cometmq.wire.command import Command

    Again = Callable[[], Reply | bytes]
    Look = Callable[[int], bool]

HOLDS_MAX = 200_000
"""Parked pulls in all."""

HOLDS_PER_PEER_MAX = 10_000
"""Parked pulls of one connection; a client parks one for each of its queues."""

HOLDS_PER_QUEUE_MAX = 256
"""Parked pulls of one connection on one queue; a client parks one for each of its groups."""

TURN_MAX = 16
"""Parked pulls that are looked at or answered before others get their turn."""

_QueueKey = tuple[str, int]


class Hold:
    """One parked request and what it takes to answer it."""

    __slots__ = ("again", "end", "key", "look", "match", "offset", "peer", "request", "timer")

    def __init__(
        self,
        key: _QueueKey,
        offset: int,
        match: Match | None,
        look: Look | None,
        request: Command,
        peer: Peer,
        again: Again,
    ) -> None:
        self.key, self.offset, self.match, self.look = key, offset, match, look
        self.end = offset
        self.request, self.peer, self.again = request, peer, again
        self.timer: asyncio.TimerHandle | None = None


class Holds:
    """All parked pulls, by queue and by connection. Lives on the broker's loop."""

    def __init__(
        self, holds_max: int = HOLDS_MAX, holds_per_peer_max: int = HOLDS_PER_PEER_MAX
    ) -> None:
        self.holds_max, self._per_peer_max = holds_max, holds_per_peer_max
        self._queues: dict[_QueueKey, set[Hold]] = {}
        self._peers: dict[Peer, set[Hold]] = {}
        self._of_both: dict[tuple[Peer, _QueueKey], int] = {}
        self._woken: deque[Hold] = deque()
        self._arrived: dict[Hold, None] = {}
        self._is_due = False
        self.parked = 0

    def park(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        match: Match | None,
        request: Command,
        peer: Peer,
        again: Again,
        timeout_ms: int,
        look: Look | None = None,
    ) -> None:
        """Keep the request until something past `offset` matches, or `timeout_ms` are over.

        What has a matching tags code is then shown to `look`, which gets the queue's new end and
        says whether anything new before it is wanted. `again` makes the answer. Raises Reject
        (SYSTEM_BUSY) when a bound is reached.
        """
        mine, both = self._peers.get(peer), (peer, (topic, queue_id))
        here = self._of_both.get(both, 0)
        if (
            self.parked >= self.holds_max
            or (mine and len(mine) >= self._per_peer_max)
            or here >= HOLDS_PER_QUEUE_MAX
        ):
            raise Reject(
                ResponseCode.SYSTEM_BUSY,
                f"{self.parked} pulls wait already, {len(mine or ())} of them yours, "
                f"{here} of these on this queue; pull later",
            )
        hold = Hold(both[1], offset, match, look, request, peer, again)
        self._of_both[both] = here + 1
        if mine is None:
            mine = self._peers[peer] = set()
            peer.on_close(self._drop_peer)
        mine.add(hold)
        self._queues.setdefault(hold.key, set()).add(hold)
        self.parked += 1
        loop = asyncio.get_running_loop()
        hold.timer = loop.call_later(timeout_ms / 1000, self._expire, hold)

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake those whom a message of this code concerns; they are answered in this tick."""
        waiting = self._queues.get((topic, queue_id))
        if not waiting:
            return
        for hold in list(waiting):
            if max_offset <= hold.offset or not (hold.match is None or hold.match(tags_code)):
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
                self._expire(hold)

    def _wake(self, hold: Hold) -> None:
        self._take_out(hold)
        self._woken.append(hold)
        self._soon()

    def _soon(self) -> None:
        """Have a turn in this tick: several arrivals make one pull."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
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
            finish_with(hold.peer, hold.request, hold.again)
        if self._woken or self._arrived:
            self._soon()

    def _expire(self, hold: Hold) -> None:
        self._take_out(hold)
        finish_with(hold.peer, hold.request, hold.again)

    def _take_out(self, hold: Hold) -> None:
        waiting = self._queues[hold.key]
        waiting.discard(hold)
        if not waiting:
            del self._queues[hold.key]
        mine = self._peers.get(hold.peer)
        if mine is not None:
            mine.discard(hold)
        both = (hold.peer, hold.key)
        self._of_both[both] -= 1
        if not self._of_both[both]:
            del self._of_both[both]
        self._arrived.pop(hold, None)
        self.parked -= 1
        if hold.timer:
            hold.timer.cancel()

    def _drop_peer(self, peer: Peer) -> None:
        for hold in self._peers.pop(peer, set()):
            self._take_out(hold)
