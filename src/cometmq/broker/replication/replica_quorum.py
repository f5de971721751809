"""The durability condition of a SYNC_MASTER: so many slaves have a message, or their time is up.

Owns what waits for slaves, in the order of the log. Refuses to know connections: it hears of what
slaves have acknowledged. Invariants: each callback is called once; one that waits longer than
`timeout_s` gets FLUSH_SLAVE_TIMEOUT, whether or not there is any slave.
Java: GroupTransferService.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.put_result import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.store.durability import DurableCallback


class _Waiting(NamedTuple):
    log_end: int
    until_s: float
    callback: DurableCallback


def quorum_end(acknowledged: Iterable[int], slaves_needed: int) -> int:
    """The byte up to which so many slaves have the log; -1 where there are too few of them."""
    assert slaves_needed > 0
    best = sorted(acknowledged, reverse=True)
    return best[slaves_needed - 1] if len(best) >= slaves_needed else -1


class ReplicaQuorum:
    """What waits for slaves. Belongs to the store's loop."""

    def __init__(self, slaves_needed: int, timeout_s: float) -> None:
        """`slaves_needed`: inSyncReplicas without the master itself."""
        assert slaves_needed > 0
        self.slaves_needed = slaves_needed
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._end = -1
        self.timeouts = 0
        """Batches of messages that slaves did not acknowledge in time."""

    def __repr__(self) -> str:
        """For the log of a condition that failed."""
        return f"ReplicaQuorum(slaves_needed={self.slaves_needed})"

    def wait_for(self, log_end: int, callback: DurableCallback) -> None:
        """Call back once enough slaves have the log up to there, or with FLUSH_SLAVE_TIMEOUT."""
        if log_end <= self._end:
            callback(PutStatus.PUT_OK)
            return
        assert not self._waiting or self._waiting[-1].log_end <= log_end
        loop = asyncio.get_running_loop()
        self._waiting.append(_Waiting(log_end, loop.time() + self._timeout_s, callback))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._time_out)

    def acknowledged(self, ends: Iterable[int]) -> None:
        """Slaves have the log up to these bytes; call after every report and lost connection."""
        self._end = end = quorum_end(ends, self.slaves_needed)
        waiting = self._waiting
        while waiting and waiting[0].log_end <= end:
            waiting.popleft().callback(PutStatus.PUT_OK)

    def close(self) -> None:
        """Answer all that waits: this broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._waiting.popleft().callback(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _time_out(self) -> None:
        loop, waiting = asyncio.get_running_loop(), self._waiting
        self._timer = None
        while waiting and waiting[0].until_s <= loop.time():
            self.timeouts += 1
            waiting.popleft().callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
        if waiting:
            self._timer = loop.call_at(waiting[0].until_s, self._time_out)
