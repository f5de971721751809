"""The log as raw bytes, for a copy of the store that is fed with nothing else.

`read_raw` of one store (see `ReadContext`) gives bytes from an offset on; `append_raw` of another
takes them at that offset. What follows from the bytes is made here by the code that recovery uses:
queue entries at once, then the key index, arrivals and delays as after a put. Runs of bytes may
begin and end anywhere, as Apache's replication sends them: what is not a whole record yet waits in
memory, so the files never hold a part that a restart could take for a record. After a restart the
copy goes on from `max_phy_offset`, until then from `raw_log.end_offset`.
Invariants: bytes continue the log exactly; only whole records with good checksums are written; a
batch of the loop has puts or raw bytes, never both.
Java: DefaultMessageStore.appendToCommitLog, DefaultHAClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, StoreCorrupt, StoreError
from cometmq.store.queues.record_dispatcher import GAP_MAX, RecordDispatcher
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.log_flush import LogFlusher, QueueEntry
    from cometmq.store.message_appender import MessageAppender
    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.wire.records.log_record import StoredRecord

_MAGICS = (log_record.MAGIC_V1, log_record.MAGIC_V2)


class RawLogAppender:
    """Takes raw bytes of another store's log. Belongs to the loop of its own store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        flusher: LogFlusher,
        appender: MessageAppender,
        is_out_of_order: Callable[[], bool],
    ) -> None:
        """`is_out_of_order`: whether the rest of the store can take nothing now."""
        self._log = commit_log
        self._queues = queues
        self._flusher = flusher
        self._appender = appender
        self._is_out_of_order = is_out_of_order
        self._dispatcher = RecordDispatcher(queues, appender.tags_code)
        self._partial = b""
        """What came last and is not a whole record yet."""
        self._partial_at = -1
        """Where it begins."""

    @property
    def end_offset(self) -> int:
        """Where the next raw bytes must begin: behind what is written and what waits in memory."""
        return self._log.tail + len(self._waiting())

    def append(self, at_offset: int, data: bytes) -> int:
        """Take bytes that begin at this offset of the log; returns the new `end_offset`.

        An empty log may begin at any multiple of its file size. Whole records are visible as puts
        are: at the end of the loop iteration, with SYNC_FLUSH once they are flushed. StoreError:
        the bytes do not continue the log, or nothing may be put; StoreCorrupt: they hold no
        records; OSError: the disk refused them. Nothing was taken then.
        """
        begins = self._begins_log(at_offset)
        unread = self._waiting() + data
        records, taken = self._decode(unread, at_offset if begins else self._log.tail)
        self._check_numbers(records)
        if begins:
            self._log.begin_at(at_offset)
        tail = self._log.tail
        self._log.append_raw(unread[:taken])
        assert self._log.tail == tail + taken, "more or less was appended than was decoded"
        self._partial = unread[taken:]
        self._partial_at = self._log.tail
        if not all(log_record.has_checksum(record.properties) for record in records):
            self._log.checksums_from = max(self._log.checksums_from, self._log.tail)
        assert len(self._partial) < self._log.file_bytes, "part of a record is larger than a file"
        entries: list[QueueEntry] = []
        for record in records:
            if (queue := self._dispatcher.queue_of(record)) is not None:
                entries += self._entries(record, queue)
        self._appender.add_entries(entries, records[-1].store_ms if records else 0)
        assert self.end_offset == at_offset + len(data)
        return self.end_offset

    def forget_partial(self) -> None:
        """Drop the part of a record that waits in memory: its rest comes from the log's end on."""
        self._partial = b""
        assert self.end_offset == self._log.tail

    def _waiting(self) -> bytes:
        """The part of a record that came last; nothing when messages were put since."""
        return self._partial if self._partial_at == self._log.tail else b""

    def _begins_log(self, at_offset: int) -> bool:
        """Whether the log begins with these bytes; raises StoreError where they may not be put."""
        log = self._log
        if log.pending:
            raise StoreError("messages were put in this loop iteration: append raw bytes later")
        if self._flusher.failure or self._is_out_of_order():
            raise StoreError("the store takes no messages now: closed, or its disk is in trouble")
        end = self.end_offset
        if at_offset == end:
            return False
        if end or not log.is_empty or at_offset % log.file_bytes:
            raise StoreError(f"raw bytes at {at_offset} do not continue a log that ends at {end}")
        return True

    def _decode(self, unread: bytes, phy_offset: int) -> tuple[list[StoredRecord], int]:
        """The whole records that bytes begin with, and how many bytes these take."""
        records: list[StoredRecord] = []
        index, file_bytes = 0, self._log.file_bytes
        while len(unread) - index >= log_record.BLANK_SIZE:
            at = phy_offset + index
            room = file_bytes - at % file_bytes
            size, magic = log_record.BLANK.unpack_from(unread, index)
            is_blank = magic == log_record.MAGIC_BLANK and size == room
            is_sound = magic in _MAGICS and log_record.FIXED_BYTES <= size <= room - 8
            if not (is_blank or is_sound):
                raise StoreCorrupt(f"the raw bytes at {at} are neither a record nor a file's end")
            if size > len(unread) - index:
                break
            if is_sound:
                records.append(_whole_record(unread, index, at))
            index += size
        assert index <= len(unread), "more was decoded than there is"
        return records, index

    def _check_numbers(self, records: list[StoredRecord]) -> None:
        """Raise StoreCorrupt where a record's number is too far from that before it in its queue.

        A smaller number is none of that: its topic was made again, see `_entries`.
        """
        next_offsets: dict[tuple[str, int], int] = {}
        for record in filter(self._dispatcher.is_in_queue, records):
            key, number = (record.topic, record.queue_id), record.queue_offset
            queue = self._queues.find(*key)
            expected = next_offsets.get(key, queue.next_offset if queue else 0)
            if expected and number - expected > GAP_MAX:
                raise StoreCorrupt(
                    f"the record at {record.phy_offset} has the number {number} in queue "
                    f"{record.queue_id} of {record.topic}, where {expected} is next: "
                    f"more than {GAP_MAX} messages cannot be missing"
                )
            next_offsets[key] = number + 1

    def _entries(self, record: StoredRecord, queue: ConsumeQueue) -> list[QueueEntry]:
        number = record.queue_offset
        if number < queue.next_offset:
            # The other store deleted the topic and made it again: its numbers begin anew.
            self._queues.remove(queue)
            queue = self._queues.get_or_create(record.topic, record.queue_id)
        if not queue.next_offset:
            queue.begin_at(number)  # the log may begin after the queue did
        entries = self._dispatcher.entries(record, queue)
        assert entries is not None, "a number that was not checked before the write"
        return entries


def _whole_record(raw: bytes, index: int, phy_offset: int) -> StoredRecord:
    try:
        record = log_record.decode(raw, index)
    except ProtocolError as problem:
        raise StoreCorrupt(f"the record at {phy_offset} cannot be read: {problem}") from problem
    is_whole = record.queue_offset >= 0 and log_record.is_whole(record, raw, index)
    if record.phy_offset != phy_offset or not is_whole:
        raise StoreCorrupt(f"the record at {phy_offset} belongs elsewhere, or is damaged")
    return record
