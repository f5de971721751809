"""Hot. What all messages of one topic and one sender share on their way into the log.

Worked out once, so that a message costs one pack, one join and two checksums. Invariant: a record
made here is the one that `wire.records.log_record.encode` makes of the same values, and its place
the one that `MessageStore.put` would have given it.
Java: none; MessageExtEncoder keeps nothing between messages.
"""

from __future__ import annotations

from itertools import accumulate, count, repeat
from operator import add
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq import native
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.log_flush import QueueEntry
    from cometmq.store.queues.consume_queue import ConsumeQueue

RecordPosition = tuple[int, int, int]
"""phy_offset, queue_offset and size of what was put."""


class RecordPositions(NamedTuple):
    """Where several messages were put, and how many bytes they take in all."""

    phy_offsets: list[int]
    queue_offsets: Sequence[int]
    size: int


class StoredBatch(NamedTuple):
    """A batch that was put: the offset ids of its messages, joined by commas, and its place."""

    ids: bytes
    queue_offset: int
    messages: int
    size: int


class _BatchSizes(NamedTuple):
    """Bytes of each body of a batch, of each message's properties, and of each record."""

    bodies: list[int]
    raws: list[int]
    records: list[int]


_length = Struct(">h").pack
_MASK = stored.CRC_MASK
_SUM = b"\x02%010d" + stored.CRC_MARK[::-1]
"""The checksum's property backwards, as its digits stand: measured, 0.03 us less."""


class LoopIterationBatch:
    """What one iteration of the loop has put: its store time and its entries.

    `store_ms` is 0 before the first put. `started_s`: when it began by the loop's own clock,
    seconds. `number` counts the iterations in which something was put or waited for.
    """

    __slots__ = ("begin", "entries", "number", "started_s", "store_ms")

    def __init__(self, begin: Callable[[], int]) -> None:
        self.begin = begin
        self.number = 0
        self.store_ms = 0
        self.started_s = 0.0
        self.entries: list[QueueEntry] = []


class RecordTemplate:
    """The constant part of records of one topic, one pair of addresses and one set of flags.

    Valid until the topic is deleted or the store's address changes; its keeper drops it then.
    """

    __slots__ = (
        "_batch",
        "_behind",
        "_behind_ms",
        "_behind_raw",
        "_born_host",
        "_fixed_bytes",
        "_flag",
        "_log",
        "_magic",
        "_of",
        "_pack",
        "_pack_front",
        "_properties_max",
        "_queues",
        "_reconsume_times",
        "_shape",
        "_size_max",
        "_store_host",
        "_sum_bytes",
        "_sys_flag",
        "_topic",
        "_topic_part",
    )

    def __init__(
        self,
        topic: str,
        of: Callable[[str, int], ConsumeQueue],
        queue_count: int,
        log: CommitLog,
        batch: LoopIterationBatch,
        *,
        flag: int,
        sys_flag: int,
        born_host: bytes,
        reconsume_times: int,
        size_max: int,
        with_crc: bool,
    ) -> None:
        self._queues: list[ConsumeQueue | None] = [None] * queue_count
        self._of = of
        self._topic = topic
        self._log = log
        self._batch = batch
        self._magic, self._topic_part = stored.topic_part(topic)
        self._pack: Callable[..., bytes] = stored.head_of(sys_flag).pack
        behind = stored.behind_front(sys_flag)
        self._behind: Callable[..., bytes] = behind.pack
        self._pack_front: Callable[..., bytes] = Struct(f"{stored.FRONT.format}{behind.size}s").pack
        self._shape = (self._magic, flag, self._topic_part, with_crc)
        self._behind_ms, self._behind_raw = -1, b""
        self._flag = flag
        self._sys_flag = sys_flag
        self._reconsume_times = reconsume_times
        self._born_host = born_host
        self._store_host = log.store_host
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
    ) -> RecordPosition | None:
        """Put a message; (phy_offset, queue_offset, size), or None where `MessageStore.put` must.

        `raw` ends with a separator, holds no checksum and stands for a message that consumers see;
        `code` is its tags code. None: nothing was kept.
        """
        batch, log = self._batch, self._log
        now = batch.store_ms or batch.begin()
        body_bytes, raw_bytes = len(body), len(raw)
        size = self._fixed_bytes + body_bytes + raw_bytes
        if not now or raw_bytes > self._properties_max or size > self._size_max:
            return None
        if log.room < size + 8:
            log.make_room(size)
        queue = self._queues[queue_id] or self._open(queue_id)
        queue_offset, phy_offset = queue.next_offset, log.tail
        log.pending += self._record(queue_id, queue_offset, born_ms, now, body, raw)
        log.tail = phy_offset + size
        log.room -= size
        queue.next_offset = queue_offset + 1
        batch.entries.append((queue, phy_offset, size, code))
        return phy_offset, queue_offset, size

    def _record(
        self, queue_id: int, queue_offset: int, born_ms: int, now: int, body: bytes, raw: bytes
    ) -> tuple[bytes, ...]:
        """The record at the log's tail, in one piece or two. Measured: 1.1 us, in C 0.5."""
        phy_offset, body_bytes, raw_bytes = self._log.tail, len(body), len(raw)
        if native.c is not None:
            places = queue_id, queue_offset, phy_offset, born_ms
            return (native.c.one_record(self._shape, self._behind_at(now), *places, body, raw),)
        record = b"".join(
            (
                self._pack(
                    self._fixed_bytes + body_bytes + raw_bytes,
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
        if self._sum_bytes:
            return record, (_SUM % (crc32(record) & _MASK))[::-1]
        return (record,)

    def put_run(
        self,
        queue_ids: Sequence[int],
        born: Sequence[int],
        bodies: Sequence[bytes],
        raws: Sequence[bytes],
        codes: Sequence[int],
    ) -> RecordPositions:
        """Do as `put` with one message after the other.

        Ends where one would have to go another way: fewer places than messages come back then.
        Measured for 64: 1.1 us each, where `put` takes 1.4.
        """
        batch, log = self._batch, self._log
        now = batch.store_ms or batch.begin()
        if not now:
            return RecordPositions([], [], 0)
        phy_offset, room, entries = log.tail, log.room, batch.entries
        pack, magic, flag, queues = self._pack_front, self._magic, self._flag, self._queues
        of_body = of_raw = of_time = size = -1
        behind = middle = b""
        records, phy_offsets, queue_offsets = [], [], []
        for queue_id, born_ms, body, raw, code, body_bytes, raw_bytes in zip(
            queue_ids, born, bodies, raws, codes, map(len, bodies), map(len, raws), strict=False
        ):
            if body_bytes != of_body or raw_bytes != of_raw or born_ms != of_time:
                of_body, of_raw, of_time = body_bytes, raw_bytes, born_ms
                size = self._fixed_bytes + body_bytes + raw_bytes
                if raw_bytes > self._properties_max or size > self._size_max:
                    break
                behind = self._behind_of(born_ms, now, body_bytes)
                middle = self._middle_of(raw_bytes)
            if room < size + 8:
                break
            queue = queues[queue_id] or self._open(queue_id)
            queue_offset = queue.next_offset
            queue.next_offset = queue_offset + 1
            body_sum = crc32(body) & _MASK
            front = pack(size, magic, body_sum, queue_id, flag, queue_offset, phy_offset, behind)
            records.append(b"".join((front, body, middle, raw)))
            entries.append((queue, phy_offset, size, code))
            phy_offsets.append(phy_offset)
            queue_offsets.append(queue_offset)
            phy_offset += size
            room -= size
        log.pending += self._with_sums(records)
        total, log.tail, log.room = phy_offset - log.tail, phy_offset, room
        return RecordPositions(phy_offsets, queue_offsets, total)

    def put_frames(
        self, data: bytes, at: int, form: tuple[object, ...], body_max: int
    ) -> tuple[int, list[bytes], int]:
        """Put the sends of frames from `at` of a chunk on, as far as they match the form.

        Where they end, their answers, and how many bytes were put. Only where hot loops are in C.
        """
        assert native.c is not None
        batch, log = self._batch, self._log
        now = batch.store_ms or batch.begin()
        if not now:
            return at, [], 0
        end, total, records, entries, answers = native.c.put_frames(
            *(data, at, form, self._shape, self._behind_at(now), self._queues),
            *(log.tail, log.room, body_max, self._properties_max, self._size_max, self._open),
        )
        log.pending += records
        batch.entries += entries
        log.tail += total
        log.room -= total
        return end, answers, total

    def put_batch(
        self,
        queue_id: int,
        born_ms: int,
        bodies: Sequence[bytes],
        raws: list[bytes],
        codes: Sequence[int],
    ) -> RecordPositions | None:
        """Put messages of one queue side by side in one file: all of them or none.

        `raws` hold no checksum and stand for messages that consumers see; `codes` are their tags
        codes. None where `MessageStore.put_batch` must do it or say why not: nothing was kept.
        Measured for 512: 0.8 us each of one size, 1.1 of many; `put_run` takes 0.8 and 1.6; C 0.2.
        """
        batch, log = self._batch, self._log
        sizes = None
        if native.c is None:
            raws = self._ended(raws)
            sizes = self._sizes_of(bodies, raws)
            total, longest, largest = sum(sizes.records), max(sizes.raws), max(sizes.records)
        else:
            total, longest, largest = native.c.measure_records(
                bodies, raws, self._fixed_bytes, bool(self._sum_bytes)
            )
        if longest > self._properties_max or largest > self._size_max or not log.fits(total):
            return None
        now = batch.store_ms or batch.begin()
        if not now:
            return None
        log.make_room(total)
        queue = self._queues[queue_id] or self._open(queue_id)
        first = queue.next_offset
        if native.c is None:
            assert sizes is not None
            records, entries, phy_offsets = self._batch_records(
                queue, born_ms, now, bodies, raws, codes, sizes
            )
        else:
            together, entries, phy_offsets = native.c.batch_records(
                *(self._shape, self._behind_at(now), queue, queue_id, first, log.tail),
                *(born_ms, bodies, raws, codes),
            )
            assert len(together) == total, "records are not as long as they were measured"
            records = [together]
        log.pending += records
        log.tail += total
        log.room -= total
        queue.next_offset += len(bodies)
        batch.entries += entries
        return RecordPositions(phy_offsets, range(first, queue.next_offset), total)

    def _sizes_of(self, bodies: Sequence[bytes], raws: list[bytes]) -> _BatchSizes:
        body_sizes, raw_sizes = list(map(len, bodies)), list(map(len, raws))
        records = [self._fixed_bytes + size for size in map(add, body_sizes, raw_sizes)]
        return _BatchSizes(body_sizes, raw_sizes, records)

    def _ended(self, raws: list[bytes]) -> list[bytes]:
        """Properties to which a checksum can be added."""
        if not self._sum_bytes:
            return raws
        return [raw + b"\x02" if raw and raw[-1] != 2 else raw for raw in raws]

    def _batch_records(
        self,
        queue: ConsumeQueue,
        born_ms: int,
        now: int,
        bodies: Sequence[bytes],
        raws: list[bytes],
        codes: Sequence[int],
        sizes: _BatchSizes,
    ) -> tuple[list[bytes], list[QueueEntry], list[int]]:
        """The records of a batch at the log's tail, the entries of their queue, and their places.

        A checksum can be added to `raws`.
        """
        body_sizes, raw_sizes, record_sizes = sizes
        phy_offsets = list(accumulate(record_sizes[:-1], initial=self._log.tail))
        behind = {size: self._behind_of(born_ms, now, size) for size in set(body_sizes)}
        middle = {size: self._middle_of(size) for size in set(raw_sizes)}
        fronts = map(
            self._pack_front,
            record_sizes,
            repeat(self._magic),
            [crc32(body) & _MASK for body in bodies],
            repeat(queue.queue_id),
            repeat(self._flag),
            count(queue.next_offset),
            phy_offsets,
            map(behind.__getitem__, body_sizes),
        )
        middles = map(middle.__getitem__, raw_sizes)
        records = list(map(b"".join, zip(fronts, bodies, middles, raws, strict=True)))
        entries = list(zip(repeat(queue), phy_offsets, record_sizes, codes, strict=False))
        return self._with_sums(records), entries, phy_offsets

    def put_batch_body(
        self,
        queue_id: int,
        born_ms: int,
        body: bytes,
        count_max: int,
        marks: tuple[bytes, ...],
        host: bytes,
    ) -> StoredBatch | None:
        """Put the messages of a batch as `put_batch` does, from the body of its request.

        At most so many, none of which holds a mark; `host` is what offset ids begin with, in hex
        digits. None, and nothing kept: here it cannot be done, or not without the next file of the
        log. Only where hot loops are in C. Measured for 32: 0.3 us a message, 0.7 by `put_batch`.
        """
        assert native.c is not None
        batch, log = self._batch, self._log
        now = batch.store_ms or batch.begin()
        if not now:
            return None
        made = native.c.put_batch(
            *(body, count_max, marks, self._shape, self._behind_at(now), self._queues, self._open),
            *(queue_id, log.tail, log.room, born_ms, self._properties_max, self._size_max, host),
        )
        if made is None:
            return None
        records, entries, ids, first = made
        size = len(records)
        log.pending.append(records)
        log.tail += size
        log.room -= size
        entries[0][0].next_offset = first + len(entries)
        batch.entries += entries
        return StoredBatch(ids, first, len(entries), size)

    def _middle_of(self, raw_bytes: int) -> bytes:
        """What stands between the body and the properties of this length."""
        return self._topic_part + _length(raw_bytes + self._sum_bytes)

    def _behind_at(self, store_ms: int) -> bytes:
        """The fields behind the front; C writes born time and size of the body into them."""
        if store_ms != self._behind_ms:
            self._behind_ms, self._behind_raw = store_ms, self._behind_of(0, store_ms, 0)
        return self._behind_raw

    def _behind_of(self, born_ms: int, store_ms: int, body_bytes: int) -> bytes:
        """The fields of a record's head that like messages of a moment share."""
        return self._behind(
            *(self._sys_flag, born_ms, self._born_host, store_ms, self._store_host),
            *(self._reconsume_times, 0, body_bytes),
        )

    def _with_sums(self, records: list[bytes]) -> list[bytes]:
        """Each record followed by its checksum, all written backwards by one `%`."""
        if not self._sum_bytes:
            return records
        count, width = len(records), self._sum_bytes
        sums = [crc32(record) & _MASK for record in reversed(records)]
        text = (_SUM * count % tuple(sums))[::-1]
        pieces = [b""] * (2 * count)
        pieces[::2] = records
        pieces[1::2] = [text[at : at + width] for at in range(0, count * width, width)]
        return pieces
