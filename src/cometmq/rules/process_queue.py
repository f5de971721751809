"""Hot. The window of one queue between pull and commit: what waits, what is in hand, what is done.

Owns the order of messages and the offset that may be committed; refuses to know threads, time,
locks and the network. Invariant: `commit_offset` is the lowest offset not finished, so a crash
repeats messages but never skips one; an offset is accepted once, in rising order.
Java: org.apache.rocketmq.client.impl.consumer.ProcessQueue
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class QueuedMessage(Protocol):
    """What the window needs of a message."""

    queue_offset: int
    body: bytes


M = TypeVar("M", bound=QueuedMessage)
_PART_LEAST = 4
"""Fewer messages are not worth a part."""


class _PulledBatch(NamedTuple, Generic[M]):
    """What one pull brought, and nothing of it is finished alone."""

    messages: list[M]
    sizes: list[int]
    size_bytes: int


class ProcessQueue(Generic[M]):
    """Messages of one queue that were pulled and are not finished. One owner: the client's loop.

    The messages of a pull are one part as long as they are finished together; where some of them
    are finished alone, each is counted by itself.
    """

    __slots__ = (
        "_by_parts", "_last_count", "_later", "_open", "_parts", "_parts_count", "_sizes", "_top",
        "next_offset", "size_bytes", "waiting",
    )  # fmt: skip

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next pull starts."""
        self.waiting: deque[M] = deque()
        """Messages nobody has taken yet, oldest first."""
        self.size_bytes = 0
        # offsets not known to be finished up to the first gap; of a part only the first one
        self._open: deque[int] = deque()
        self._parts: dict[int, _PulledBatch[M]] = {}  # by first offset, oldest first
        self._parts_count = 0  # messages in them
        self._sizes: dict[int, int] = {}  # of the other unfinished ones
        self._later: dict[int, list[int]] = {}  # offsets that follow one in `_open`
        self._top = next_offset - 1  # highest offset ever accepted
        self._by_parts = True  # whether what comes is likely to be finished as it came
        self._last_count = 0  # messages of the last pull

    @property
    def count(self) -> int:
        """Messages not finished."""
        return self._parts_count + len(self._sizes)

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest offset held."""
        return self._top - self._open[0] if self._open else 0

    @property
    def commit_offset(self) -> int:
        """The offset to start from after a crash: everything below is finished."""
        return self._open[0] if self._open else self.next_offset

    def put(self, messages: Sequence[M], next_offset: int) -> list[M]:
        """Accept what a pull brought and return it; offsets seen before are left out."""
        if messages and messages[0].queue_offset <= self._top:
            messages = [message for message in messages if message.queue_offset > self._top]
        taken = list(messages)
        if self._by_parts and len(taken) >= _PART_LEAST:
            self._put_part(taken)
        else:
            for message in taken:
                size = self._sizes[message.queue_offset] = len(message.body)
                self._open.append(message.queue_offset)
                self.size_bytes += size
        if taken:
            self._top, self._last_count = taken[-1].queue_offset, len(taken)
            self.waiting.extend(taken)
        self.next_offset = max(next_offset, self._top + 1)
        return taken

    def take(self, count: int) -> list[M]:
        """Take up to `count` of the oldest waiting messages in hand."""
        waiting = self.waiting
        if count >= len(waiting):
            taken = list(waiting)
            waiting.clear()
            return taken
        return [waiting.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[M]) -> None:
        """Return messages in hand to the head of the queue, in their order."""
        self.waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[M]) -> None:
        """Mark messages in hand as finished."""
        pending, sizes, parts, later = self._open, self._sizes, self._parts, self._later
        if not parts:
            for message in messages:
                self.size_bytes -= sizes.pop(message.queue_offset, 0)
            if len(messages) == self._last_count:
                self._by_parts = True
        elif messages and not self._is_part(messages):
            for message in messages:
                if message.queue_offset not in sizes:
                    self._split(message.queue_offset)
                self.size_bytes -= sizes.pop(message.queue_offset, 0)
        while pending and (first := pending[0]) not in sizes:
            if parts and first in parts:
                return
            pending.popleft()
            if later and first in later:
                pending.extendleft(reversed(later.pop(first)))

    def _put_part(self, taken: list[M]) -> None:
        sizes = [len(message.body) for message in taken]  # handlers may change a body
        part = _PulledBatch(taken, sizes, sum(sizes))
        self._parts[taken[0].queue_offset] = part
        self._parts_count += len(taken)
        self.size_bytes += part.size_bytes
        self._open.append(taken[0].queue_offset)

    def _is_part(self, messages: Sequence[M]) -> bool:
        """Finish a part, if that is what the messages are; whether they were."""
        first = messages[0].queue_offset
        part = self._parts.get(first)
        if part is None or part.messages != messages:
            return False
        del self._parts[first]
        self._parts_count -= len(part.messages)
        self.size_bytes -= part.size_bytes
        return True

    def _split(self, offset: int) -> None:
        """Count the messages of the part with this offset one by one from now on."""
        for first, part in self._parts.items():
            if first <= offset <= part.messages[-1].queue_offset:
                del self._parts[first]
                self._parts_count -= len(part.messages)
                offsets = [message.queue_offset for message in part.messages]
                self._sizes.update(zip(offsets, part.sizes, strict=True))
                self._later[first] = offsets[1:]
                self._by_parts = False
                return
