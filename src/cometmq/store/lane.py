"""Hot. What all messages of one topic and one sender share on their way into the log.

Worked out once, so that a message costs one pack, one join and two checksums. Refuses to know
files: `MessageStore.put_in` gives the places. Invariant: a record made here is the one that
`wire.stored.encode` makes of the same values.
Java: none; MessageExtEncoder keeps nothing between messages.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from cometmq.wire import stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.commit_log import CommitLog
    from cometmq.store.consume_queue import ConsumeQueue

_length = Struct(">h").pack
_MASK = stored.CRC_MASK


class Lane:
    """The constant part of records of one topic, one pair of addresses and one set of flags.

    Valid until the topic is deleted or the store's address changes; its keeper drops it then.
    """

    __slots__ = (
        "_born_host",
        "_flag",
        "_magic",
        "_of",
        "_pack",
        "_reconsume_times",
        "_store_host",
        "_sum_bytes",
        "_sys_flag",
        "_topic",
        "_topic_part",
        "fixed_bytes",
        "queues",
    )

    def __init__(
        self,
        topic: str,
        of: Callable[[str, int], ConsumeQueue],
        queue_count: int,
        *,
        flag: int,
        sys_flag: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        with_crc: bool,
    ) -> None:
        self.queues: list[ConsumeQueue | None] = [None] * queue_count
        self._of, self._topic = of, topic
        self._magic, self._topic_part = stored.topic_part(topic)
        self._pack: Callable[..., bytes] = stored.head_of(sys_flag).pack
        self._flag, self._sys_flag, self._reconsume_times = flag, sys_flag, reconsume_times
        self._born_host, self._store_host = born_host, store_host
        self._sum_bytes = stored.CRC_BYTES if with_crc else 0
        self.fixed_bytes = stored.size_of(topic, b"", b"", sys_flag, with_crc)

    def open(self, queue_id: int) -> ConsumeQueue:
        """The queue, made with its first message."""
        queue = self.queues[queue_id] = self._of(self._topic, queue_id)
        return queue

    def place(
        self,
        log: CommitLog,
        size: int,
        queue_id: int,
        queue_offset: int,
        born_ms: int,
        store_ms: int,
        body: bytes,
        raw: bytes,
    ) -> int:
        """Put one record at the tail of the log, still in memory, and return its phy_offset.

        `size` = fixed_bytes + body + properties, for which there is room; `raw` ends with a
        separator and holds no checksum.
        """
        phy_offset = log.tail
        sum_bytes = self._sum_bytes
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
                    store_ms,
                    self._store_host,
                    self._reconsume_times,
                    0,
                    len(body),
                ),
                body,
                self._topic_part,
                _length(len(raw) + sum_bytes),
                raw,
            )
        )
        if sum_bytes:
            record += b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(record) & _MASK))[::-1]
        log.pending.append(record)
        log.tail = phy_offset + size
        log.room -= size
        return phy_offset
