"""Hot. The window of one queue between pull and commit: what waits, what is in hand, what is done.

Owns the order of messages and the offset that may be committed; refuses to know threads, time,
locks and the network. Invariant: `commit_offset` is the lowest offset not finished, so a crash
repeats messages but never skips one; an offset is accepted once, in rising order.
Java: org.apache.rocketmq.client.impl.consumer.ProcessQueue
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class Queued(Protocol):
    """What the window needs of a message."""

    queue_offset: int
    body: bytes


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """Messages of one queue that were pulled and are not finished. One owner: the client's loop."""

    __slots__ = ("_open", "_sizes", "_top", "next_offset", "size_bytes", "waiting")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next pull starts."""
        self.waiting: deque[M] = deque()
        """Messages nobody has taken yet, oldest first."""
        self.size_bytes = 0
        self._open: deque[int] = deque()  # offsets not known to be finished up to the first gap
        self._sizes: dict[int, int] = {}  # of the unfinished ones; handlers may change a body
        self._top = next_offset - 1  # highest offset ever accepted

    @property
    def count(self) -> int:
        """Messages not finished."""
        return len(self._sizes)

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest offset held."""
        return self._open[-1] - self._open[0] if self._open else 0

    @property
    def commit_offset(self) -> int:
        """The offset to start from after a crash: everything below is finished."""
        return self._open[0] if self._open else self.next_offset

    def put(self, messages: Sequence[M], next_offset: int) -> list[M]:
        """Accept what a pull brought and return it; offsets seen before are left out."""
        if messages and messages[0].queue_offset <= self._top:
            messages = [message for message in messages if message.queue_offset > self._top]
        taken = list(messages)
        for message in taken:
            size = self._sizes[message.queue_offset] = len(message.body)
            self._open.append(message.queue_offset)
            self.size_bytes += size
        if taken:
            self._top = taken[-1].queue_offset
            self.waiting.extend(taken)
        self.next_offset = max(next_offset, self._top + 1)
        return taken

    def take(self, count: int) -> list[M]:
        """Take up to `count` of the oldest waiting messages in hand."""
        waiting = self.waiting
        return [waiting.popleft() for _ in range(min(count, len(waiting)))]

    def put_back(self, messages: Sequence[M]) -> None:
        """Return messages in hand to the head of the queue, in their order."""
        self.waiting.extendleft(reversed(messages))

    def done(self, messages: Sequence[M]) -> None:
        """Mark messages in hand as finished."""
        pending, sizes = self._open, self._sizes
        for message in messages:
            self.size_bytes -= sizes.pop(message.queue_offset, 0)
        while pending and pending[0] not in sizes:
            pending.popleft()
