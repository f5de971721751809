"""Pulled messages that wait until somebody polls: what a polling consumer has instead of handlers.

Offers an engine what a `ConsumeStrategy` offers. Invariant: a message leaves the window when it is
handed out, so the window's commit offset is the position of the queue.
Java: AssignedMessageQueue, DefaultLitePullConsumerImpl.poll
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import BlockedQueue


class PollBuffer:
    """Pulled batches, the oldest first. One loop owns it."""

    overlap_count = 0

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when there may be something to poll, or the consumer stops."""
        self.paused: set[MessageQueue] = set()
        self.message_count = 0
        """Messages in it."""
        self.last_taken: tuple[AssignedQueue, int] | None = None
        """Where the messages begin that were handed out last: a program may be at work on them."""
        self._batches: deque[tuple[AssignedQueue, deque[MessageExt]]] = deque()

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Keep a queue paused that was paused before it was restarted."""
        assigned.is_paused = assigned.queue in self.paused

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Append newly pulled messages."""
        if messages:
            assigned.window.take(len(messages))
            self._batches.append((assigned, deque(messages)))
            self.message_count += len(messages)
            self.changed.set()

    def take(self, count: int) -> list[MessageExt]:
        """Hand out up to `count` messages of one queue, the oldest batch first."""
        self.last_taken = None
        at = 0
        while at < len(self._batches):
            assigned, waiting = self._batches[at]
            if assigned.is_dropped:
                self.message_count -= len(waiting)
                del self._batches[at]
            elif assigned.is_paused:
                at += 1  # it keeps its place: its queue stays in order
            else:
                return self._take_at(at, count)
        return []

    def _take_at(self, at: int, count: int) -> list[MessageExt]:
        assigned, waiting = self._batches[at]
        if count < len(waiting):
            found = [waiting.popleft() for _ in range(count)]
        else:
            found = list(waiting)
            del self._batches[at]
        self.message_count -= len(found)
        assert self.message_count >= 0, "more was handed out than was pulled"
        assigned.window.finish(found)
        assigned.note_room()
        self.last_taken = (assigned, found[0].queue_offset)
        return found

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """True: no handler has messages."""
        del assigned, timeout_s
        return True

    def blocked_queues(self) -> list[BlockedQueue]:
        """No queue is ever blocked: there is no handler that fails."""
        return []

    def waiting_keys(self, assigned: AssignedQueue, most: int) -> tuple[list[str], int]:
        """None: keys have no order to keep."""
        del assigned, most
        return [], 0

    def running_info(self) -> dict[str, str]:
        """That this consumer polls."""
        return {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"}

    def resize(self, threads: int) -> None:
        """Nothing: there are no handlers."""

    def close(self) -> None:
        """Wake up all callers of `poll`: no message will come any more."""
        self._batches.clear()
        self.changed.set()
