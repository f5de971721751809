"""Sends back messages that hold up a queue since their handler has had them for too long.

Owns the search for such calls and the bound of one search; knows nothing of what handlers do.
Invariant: a message leaves the window only after a broker has taken it back.
Java: ProcessQueue.cleanExpiredMsg
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.handling.call_run import CallRun
    from cometmq.client.handling.call_workers import RunningCall

log = logging.getLogger(__name__)

SEARCHES = 15
"""Searches in the time that a handler may take."""
_MESSAGES_MAX = 16
_DELAY_LEVEL = 3


class ExpiredMessages:
    """Looks after the running calls of one consumer. One loop owns it."""

    def __init__(
        self,
        running: Callable[[], list[RunningCall]],
        timeout_s: float,
        failed_sender: FailedMessageSender,
        remember_offset: Callable[[AssignedQueue], None],
        clock: Callable[[], float],
    ) -> None:
        self._running = running
        self._timeout_s = timeout_s
        self._failed_sender = failed_sender
        self._remember_offset = remember_offset
        self._clock = clock

    async def send_back(self) -> None:
        """Search once, in all queues."""
        limit = self._clock() - self._timeout_s
        expired: dict[AssignedQueue, dict[int, CallRun]] = defaultdict(dict)
        for run, at, began in self._running():
            if began < limit and not run.assigned.is_dropped:
                own = expired[run.assigned]
                own |= {message.queue_offset: run for message in run.call(at)}
        for assigned, runs in expired.items():
            await self._send_back_head(assigned, runs)

    async def _send_back_head(self, assigned: AssignedQueue, runs: dict[int, CallRun]) -> None:
        """Send back the oldest messages of a queue as long as they have expired, at most 16."""
        reason = f"it was in its handler for more than {self._timeout_s:g} s"
        for _ in range(_MESSAGES_MAX):
            head = assigned.window.commit_offset
            run = runs.pop(head, None)
            if run is None or assigned.is_dropped:
                return
            message = next(one for one in run.messages if one.queue_offset == head)
            log.warning("%s is sent back: %s", message, reason)
            if not await self._failed_sender.send_back(
                message, assigned.queue, _DELAY_LEVEL, reason
            ):
                return
            run.expired.append(message)
            assigned.window.finish([message])
            self._remember_offset(assigned)
