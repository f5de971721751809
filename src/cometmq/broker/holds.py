"""Parked pulls: requests that found nothing and wait for an arrival or for their deadline.

Owns who waits where; refuses to know how a pull is answered: it calls `again` once for each request
and hands its reply to the connection it came from, under the opaque it came with.
Invariant: every parked request leaves exactly once, by arrival, deadline or close. Bounds: in all
and per connection; beyond them parking is refused with SYSTEM_BUSY.
Java: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
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

HOLDS_MAX = 200_000
"""Parked pulls in all."""

HOLDS_PER_PEER_MAX = 10_000
"""Parked pulls of one connection; a client parks one for each of its queues."""

_QueueKey = tuple[str, int]


class Hold:
    """One parked request and what it takes to answer it."""

    __slots__ = ("again", "key", "match", "offset", "peer", "request", "timer")

    def __init__(
        self,
        key: _QueueKey,
        offset: int,
        match: Match | None,
        request: Command,
        peer: Peer,
        again: Again,
    ) -> None:
        self.key, self.offset, self.match = key, offset, match
        self.request, self.peer, self.again = request, peer, again
        self.timer: asyncio.TimerHandle | None = None


class Holds:
    """All parked pulls, by queue and by connection. Lives on the broker's loop."""

    def __init__(
        self, holds_max: int = HOLDS_MAX, holds_per_peer_max: int = HOLDS_PER_PEER_MAX
    ) -> None:
        self._holds_max, self._per_peer_max = holds_max, holds_per_peer_max
        self._queues: dict[_QueueKey, set[Hold]] = {}
        self._peers: dict[Peer, set[Hold]] = {}
        self._woken: list[Hold] = []
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
    ) -> None:
        """Keep the request until something past `offset` matches, or `timeout_ms` are over.

        `again` then makes the answer. Raises Reject (SYSTEM_BUSY) when a bound is reached.
        """
        mine = self._peers.get(peer)
        if self.parked >= self._holds_max or (mine and len(mine) >= self._per_peer_max):
            raise Reject(
                ResponseCode.SYSTEM_BUSY,
                f"{self.parked} pulls wait already, {len(mine or ())} of them yours; pull later",
            )
        hold = Hold((topic, queue_id), offset, match, request, peer, again)
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
            if max_offset > hold.offset and (hold.match is None or hold.match(tags_code)):
                self._wake(hold)

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
        if not self._woken:  # several arrivals of one tick make one pull
            asyncio.get_running_loop().call_soon(self._answer_woken)
        self._woken.append(hold)

    def _answer_woken(self) -> None:
        woken, self._woken = self._woken, []
        for hold in woken:
            finish_with(hold.peer, hold.request, hold.again)

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
        self.parked -= 1
        if hold.timer:
            hold.timer.cancel()

    def _drop_peer(self, peer: Peer) -> None:
        for hold in self._peers.pop(peer, set()):
            self._take_out(hold)
