"""The durability condition of a SYNC_MASTER: so many slaves have a message, or their time is up.

Owns what waits for slaves, in the order of the log. Refuses to know connections: it hears of what
slaves have. A slave that began in the middle of the log says nothing of what lies before: Apache's
masters count it there, and answer OK to what no slave has. Invariants: each callback is called
once; one that waits longer than `timeout_s` gets FLUSH_SLAVE_TIMEOUT, whether or not there is any
slave. Java: GroupTransferService.
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
    log_begin: int
    log_end: int
    until_s: float
    callback: DurableCallback


class SlaveRange(NamedTuple):
    """The bytes of the log that a slave has for certain."""

    begin: int
    end: int


class ReplicaQuorum:
    """What waits for slaves. Belongs to the store's loop."""

    def __init__(self, slaves_needed: int, timeout_s: float) -> None:
        """`slaves_needed`: inSyncReplicas without the master itself."""
        assert slaves_needed > 0
        self.slaves_needed = slaves_needed
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._slaves: tuple[SlaveRange, ...] = ()
        self.timeouts = 0
        """Batches of messages that slaves did not acknowledge in time."""

    def __repr__(self) -> str:
        """For the log of a condition that failed."""
        return f"ReplicaQuorum(slaves_needed={self.slaves_needed})"

    def wait_for(self, log_begin: int, log_end: int, callback: DurableCallback) -> None:
        """Call back once enough slaves have these bytes, or with FLUSH_SLAVE_TIMEOUT."""
        if self._is_covered(log_begin, log_end):
            callback(PutStatus.PUT_OK)
            return
        assert not self._waiting or self._waiting[-1].log_end <= log_end
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        self._waiting.append(_Waiting(log_begin, log_end, until_s, callback))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._time_out)

    def acknowledged(self, slaves: Iterable[SlaveRange]) -> None:
        """Connected slaves have so much; call after every report and lost connection."""
        self._slaves = tuple(slaves)
        if not (waiting := self._waiting):
            return
        best = max((slave.end for slave in self._slaves), default=-1)
        passed = list[_Waiting]()
        while waiting and waiting[0].log_end <= best:
            first = waiting.popleft()
            if self._is_covered(first.log_begin, first.log_end):
                first.callback(PutStatus.PUT_OK)
            else:
                passed.append(first)
        waiting.extendleft(reversed(passed))

    def _is_covered(self, log_begin: int, log_end: int) -> bool:
        having = [each for each in self._slaves if each.begin <= log_begin and log_end <= each.end]
        return len(having) >= self.slaves_needed

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
