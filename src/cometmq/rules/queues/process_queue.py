"""Hot. The window of one queue from pull to commit: what waits, what is in flight, what is done.

Owns the order of messages and the offset that may be committed; knows nothing of threads, time,
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
_BATCH_LEAST = 4
"""Smaller pulls are not kept as one batch."""


class _PulledBatch(NamedTuple, Generic[M]):
    """The messages of one pull, as long as they are finished together."""

    messages: list[M]
    sizes: list[int]
    size_bytes: int


class ProcessQueue(Generic[M]):
    """Messages of one queue that were pulled and are not finished. One owner: the client's loop.

    The messages of a pull are one batch as long as they are finished together; when some of them
    are finished alone, each is counted by itself.
    """

    __slots__ = (
        "_batches",
        "_batches_count",
        "_by_batches",
        "_last_count",
        "_later",
        "_open",
        "_sizes",
        "_top",
        "next_offset",
        "size_bytes",
        "waiting",
    )  # fmt: skip

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next pull starts."""
        self.waiting: deque[M] = deque()
        """Messages nobody has taken yet, oldest first."""
        self.size_bytes = 0
        # unfinished offsets, lowest first; of a batch only its first one
        self._open: deque[int] = deque()
        self._batches: dict[int, _PulledBatch[M]] = {}  # by first offset, oldest first
        self._batches_count = 0  # messages in them
        self._sizes: dict[int, int] = {}  # of the other unfinished ones
        self._later: dict[int, list[int]] = {}  # what follows an offset of `_open`
        self._top = next_offset - 1  # highest offset ever accepted
        self._by_batches = True  # whether pulls are likely to be finished as they came
        self._last_count = 0  # messages of the last pull

    @property
    def count(self) -> int:
        """Messages not finished."""
        return self._batches_count + len(self._sizes)

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
        if self._by_batches and len(taken) >= _BATCH_LEAST:
            self._put_batch(taken)
        else:
            for message in taken:
                size = self._sizes[message.queue_offset] = len(message.body)
                self._open.append(message.queue_offset)
                self.size_bytes += size
        if taken:
            self._top = taken[-1].queue_offset
            self._last_count = len(taken)
            self.waiting.extend(taken)
        self.next_offset = max(next_offset, self._top + 1)
        return taken

    def take(self, count: int) -> list[M]:
        """Take up to `count` of the oldest waiting messages: they are in flight from now on."""
        waiting = self.waiting
        if count >= len(waiting):
            taken = list(waiting)
            waiting.clear()
            return taken
        return [waiting.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[M]) -> None:
        """Return messages in flight to the head of the queue, in their order."""
        self.waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[M]) -> None:
        """Mark messages in flight as finished."""
        pending, sizes, batches, later = self._open, self._sizes, self._batches, self._later
        if not batches:
            for message in messages:
                self.size_bytes -= sizes.pop(message.queue_offset, 0)
            if len(messages) == self._last_count:
                self._by_batches = True
        else:
            rest = messages
            while rest and (count := self._finish_batch(rest)):
                rest = rest[count:]
            for message in rest:
                if message.queue_offset not in sizes:
                    self._split(message.queue_offset)
                self.size_bytes -= sizes.pop(message.queue_offset, 0)
        while pending and (first := pending[0]) not in sizes:
            if batches and first in batches:
                break
            pending.popleft()
            if later and first in later:
                pending.extendleft(reversed(later.pop(first)))
        assert self.size_bytes >= 0, "more bytes were finished than were put"

    def _put_batch(self, taken: list[M]) -> None:
        sizes = [len(message.body) for message in taken]  # handlers may change a body
        batch = _PulledBatch(taken, sizes, sum(sizes))
        self._batches[taken[0].queue_offset] = batch
        self._batches_count += len(taken)
        self.size_bytes += batch.size_bytes
        self._open.append(taken[0].queue_offset)

    def _finish_batch(self, messages: Sequence[M]) -> int:
        """Finish the batch that these messages begin with; how many it has, 0 for none."""
        first = messages[0].queue_offset
        batch = self._batches.get(first)
        if batch is None:
            return 0
        count = len(batch.messages)
        if batch.messages != messages[:count]:
            return 0
        del self._batches[first]
        self._batches_count -= count
        assert self._batches_count >= 0, "more messages were finished than were put"
        self.size_bytes -= batch.size_bytes
        return count

    def _split(self, offset: int) -> None:
        """Count the messages of the batch with this offset one by one from now on."""
        for first, batch in self._batches.items():
            if first <= offset <= batch.messages[-1].queue_offset:
                del self._batches[first]
                self._batches_count -= len(batch.messages)
                offsets = [message.queue_offset for message in batch.messages]
                self._sizes.update(zip(offsets, batch.sizes, strict=True))
                self._later[first] = offsets[1:]
                self._by_batches = False
                return
