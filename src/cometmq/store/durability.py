"""Conditions that a message must meet, beside the local flush, before its sender has a response.

A condition gets the bytes of the log that were written, and calls back when these are as safe as it
promises: on so many replicas, say. All conditions are asked at the moment of the write, and
run beside the local flush. A store without conditions does nothing here.
Invariant: each callback is called once, after every condition and the local flush have answered.
Java: CommitLog.handleDiskFlushAndHA, GroupTransferService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from cometmq.store.put_result import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    DurableCallback = Callable[[PutStatus], None]

log = logging.getLogger(__name__)

_SEVERITY = {
    PutStatus.PUT_OK: 0,
    PutStatus.FLUSH_DISK_TIMEOUT: 1,
    PutStatus.SLAVE_NOT_AVAILABLE: 2,
    PutStatus.FLUSH_SLAVE_TIMEOUT: 3,
    PutStatus.SERVICE_NOT_AVAILABLE: 4,
}
"""Which status is reported where several failed: not kept at all before not replicated in time."""


class DurabilityCondition(Protocol):
    """What a message may have to wait for. Used on the store's loop."""

    def wait_for(self, log_begin: int, log_end: int, callback: DurableCallback) -> None:
        """Call `callback` once, now or later, on the loop: these bytes meet it, or not.

        PUT_OK when they do; FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE when the message is kept and
        the condition was not met in time. The condition sees to it that a time runs out. One that
        raises is not met: SLAVE_NOT_AVAILABLE.
        """
        ...


class DurabilityConditions:
    """The conditions of one store. Belongs to its loop."""

    def __init__(self) -> None:
        self.active: tuple[DurabilityCondition, ...] = ()
        """All of them: an attribute, because each batch of puts asks whether there are any."""
        self._is_failing = False
        """Whether one raised when they were asked last: logged once, not with each batch."""
        self.on_change: list[Callable[[], None]] = []
        """Called when there is a condition more, or one less; fast paths listen."""

    def add(self, condition: DurabilityCondition) -> None:
        """Have what is put from now on wait for this condition, too."""
        self.active = (*self.active, condition)
        self._notify()

    def remove(self, condition: DurabilityCondition) -> None:
        """Ask this condition no longer; what it was asked it still answers."""
        kept = list(self.active)
        kept.remove(condition)
        self.active = tuple(kept)
        self._notify()

    def _notify(self) -> None:
        for notify in self.on_change:
            notify()

    def begin(
        self, log_begin: int, log_end: int, callbacks: list[DurableCallback]
    ) -> DurableCallback:
        """Ask all conditions about what was written; returns what the local flush must call."""
        conditions = self.active
        wait = _Wait(callbacks, 1 + len(conditions))
        failed = [each for each in conditions if not self._ask(each, log_begin, log_end, wait)]
        self._is_failing = bool(failed)
        return wait.end_one

    def _ask(
        self, condition: DurabilityCondition, log_begin: int, log_end: int, wait: _Wait
    ) -> bool:
        """Ask one condition; where it raises, it is not met. Say whether it did not raise."""
        answer = _Answer(wait)
        try:
            condition.wait_for(log_begin, log_end, answer)
        except Exception:  # of whoever adds a condition: the batch must be answered
            if not self._is_failing:
                log.exception(
                    "the durability condition %r failed: sends are answered SLAVE_NOT_AVAILABLE",
                    condition,
                )
            if not answer.is_given:
                answer(PutStatus.SLAVE_NOT_AVAILABLE)
            return False
        return True


class _Wait:
    """Callbacks that wait for the local flush and all conditions."""

    __slots__ = ("_callbacks", "_left", "_status")

    def __init__(self, callbacks: list[DurableCallback], count: int) -> None:
        self._callbacks = callbacks
        self._left = count
        self._status = PutStatus.PUT_OK

    def end_one(self, status: PutStatus) -> None:
        """One of them has answered."""
        assert self._left > 0, "more answers than were waited for"
        self._left -= 1
        if _SEVERITY[status] > _SEVERITY[self._status]:
            self._status = status
        if not self._left:
            for callback in self._callbacks:
                callback(self._status)


class _Answer:
    """What one condition calls, once."""

    __slots__ = ("_wait", "is_given")

    def __init__(self, wait: _Wait) -> None:
        self._wait = wait
        self.is_given = False

    def __call__(self, status: PutStatus) -> None:
        """The condition has answered."""
        assert not self.is_given, "a condition answered twice"
        self.is_given = True
        self._wait.end_one(status)
