"""Hot. What all messages of one topic and one sender share on their way into the log.

Worked out once, so that a message costs one pack, one join and two checksums. Invariant: a record
made here is the one that `wire.stored.encode` makes of the same values, and its place the one that
`MessageStore.put` would have given it.
Java: none; MessageExtEncoder keeps nothing between messages.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from cometmq.wire import properties, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.commit_log import CommitLog
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.flush import Entry

_length = Struct(">h").pack
_MASK = stored.CRC_MASK
_SUM = b"\x02%010d" + stored.CRC_MARK[::-1]
"""The checksum's property backwards, as its digits stand: measured, 0.03 us less."""


class Turn:
    """What one turn of the loop has put: its time, 0 before the first put, and its entries."""

    __slots__ = ("begin", "now_ms", "placed")

    def __init__(self, begin: Callable[[], int]) -> None:
        self.begin, self.now_ms = begin, 0
        self.placed: list[Entry] = []


class Lane:
    """The constant part of records of one topic, one pair of addresses and one set of flags.

    Valid until the topic is deleted or the store's address changes; its keeper drops it then.
    """

    __slots__ = (
        "_born_host",
        "_fixed_bytes",
        "_flag",
        "_log",
        "_magic",
        "_of",
        "_pack",
        "_properties_max",
        "_queues",
        "_reconsume_times",
        "_size_max",
        "_store_host",
        "_sum_bytes",
        "_sys_flag",
        "_topic",
        "_topic_part",
        "_turn",
    )

    def __init__(
        self,
        topic: str,
        of: Callable[[str, int], ConsumeQueue],
        queue_count: int,
        log: CommitLog,
        turn: Turn,
        *,
        flag: int,
        sys_flag: int,
        born_host: bytes,
        reconsume_times: int,
        size_max: int,
        with_crc: bool,
    ) -> None:
        self._queues: list[ConsumeQueue | None] = [None] * queue_count
        self._of, self._topic = of, topic
        self._log, self._turn = log, turn
        self._magic, self._topic_part = stored.topic_part(topic)
        self._pack: Callable[..., bytes] = stored.head_of(sys_flag).pack
        self._flag, self._sys_flag, self._reconsume_times = flag, sys_flag, reconsume_times
        self._born_host, self._store_host = born_host, log.store_host
        self._sum_bytes = stored.CRC_BYTES if with_crc else 0
        self._fixed_bytes = stored.size_of(topic, b"", b"", sys_flag, with_crc)
        self._properties_max = properties.BYTES_MAX - (self._sum_bytes and self._sum_bytes + 1)
        self._size_max = size_max

    def _open(self, queue_id: int) -> ConsumeQueue:
        """The queue, made with its first message."""
        queue = self._queues[queue_id] = self._of(self._topic, queue_id)
        return queue

    def put(
        self, queue_id: int, born_ms: int, body: bytes, raw: bytes, code: int
    ) -> tuple[int, int, int] | None:
        """Put a message; (phy_offset, queue_offset, size), or None where `MessageStore.put` must.

        `raw` ends with a separator, holds no checksum and stands for a message that consumers see;
        `code` is its tags code. None: nothing was kept.
        """
        turn, log = self._turn, self._log
        now = turn.now_ms or turn.begin()
        body_bytes, raw_bytes = len(body), len(raw)
        size = self._fixed_bytes + body_bytes + raw_bytes
        if not now or raw_bytes > self._properties_max or size > self._size_max:
            return None
        if log.room < size + 8:
            log.make_room(size)
        queue = self._queues[queue_id] or self._open(queue_id)
        queue_offset, phy_offset = queue.next_offset, log.tail
        record = b"".join(
            (
                self._pack(
                    size,
                    self._magic,
                    crc32(body) & _MASK,
                    queue_id,
                    self._flag,
                    queue_offset,
                    phy_offset,
                    self._sys_flag,
                    born_ms,
                    self._born_host,
                    now,
                    self._store_host,
                    self._reconsume_times,
                    0,
                    body_bytes,
                ),
                body,
                self._topic_part,
                _length(raw_bytes + self._sum_bytes),
                raw,
            )
        )
        pending = log.pending
        pending.append(record)
        if self._sum_bytes:
            pending.append((_SUM % (crc32(record) & _MASK))[::-1])
        log.tail = phy_offset + size
        log.room -= size
        queue.next_offset = queue_offset + 1
        turn.placed.append((queue, phy_offset, size, code))
        return phy_offset, queue_offset, size
