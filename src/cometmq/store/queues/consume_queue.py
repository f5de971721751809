"""Hot. One queue of one topic: 20 bytes a message that give its place in the log.

New entries stay in memory until `write_pending` writes them to the queue's files, in the
background; they can all be built again from the log. Knows nothing of tags and records.
Invariants: next_offset counts the messages put, max_offset those that readers may see; entries
[written_offset, max_offset) are in `tail`, those before in the files.
Layout: `wire/records/consume_queue_entry.py`. Java: ConsumeQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire.records import consume_queue_entry

if TYPE_CHECKING:
    from cometmq.store.log.mapped_file_queue import MappedFileQueue

pack = consume_queue_entry.ENTRY.pack
_unpack = consume_queue_entry.ENTRY.unpack
SIZE = consume_queue_entry.SIZE


class ConsumeQueue:
    """The entries of one queue. One loop owns it."""

    __slots__ = (
        "_min_for",
        "_min_offset",
        "mapped_files",
        "max_offset",
        "next_offset",
        "queue_id",
        "tail",
        "topic",
        "written_offset",
    )

    def __init__(self, topic: str, queue_id: int, mapped_files: MappedFileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.mapped_files = mapped_files
        self.tail = bytearray()
        self.next_offset = self.max_offset = self.written_offset = 0
        self._min_offset = 0
        self._min_for = -1

    def begin_at(self, queue_offset: int) -> None:
        """Take this as the end of the queue; what the files hold before it is good."""
        assert queue_offset >= 0
        self.tail.clear()
        self.next_offset = self.max_offset = self.written_offset = queue_offset
        self._min_for = -1

    def write_pending(self) -> list[int]:
        """Write the waiting entries; the bases of the files they went to. OSError: they still wait.

        What an unclean stop left beyond the last entry is overwritten by zeros when recovery calls
        `cut`, never here.
        """
        assert len(self.tail) == (self.max_offset - self.written_offset) * SIZE
        at, done = self.written_offset * SIZE, 0
        mapped_files, tail, bases = self.mapped_files, self.tail, []
        if not mapped_files.bases:
            self._fill_before(at)
        while done < len(tail):
            room = mapped_files.file_bytes - at % mapped_files.file_bytes
            piece = bytes(tail[done : done + room])
            mapped_files.write(at, piece)
            bases.append(mapped_files.base_of(at))
            at += len(piece)
            done += len(piece)
        self.written_offset = at // SIZE
        tail.clear()
        assert self.written_offset == self.max_offset <= self.next_offset
        return bases

    def _fill_before(self, at: int) -> None:
        """Mark the places before a queue's first entry, where its file does not begin with it."""
        if room := at % self.mapped_files.file_bytes:
            self.mapped_files.write(at - room, consume_queue_entry.FILLER * (room // SIZE))

    def read(self, queue_offset: int, count: int, cached_only: bool = False) -> bytes:
        """Up to `count` entries from `queue_offset` on; fewer where a file ends.

        With `cached_only`, here and below, NotInMemory is raised rather than the disk waited for.
        """
        count = min(count, self.max_offset - queue_offset)
        index = queue_offset - self.written_offset
        if index >= 0:
            return bytes(self.tail[index * SIZE : (index + count) * SIZE])
        at = queue_offset * SIZE
        mapped_files = self.mapped_files
        room, written = mapped_files.file_bytes - at % mapped_files.file_bytes, -index * SIZE
        room = min(room, written)  # what is beyond is not valid yet
        found = mapped_files.read_ahead(at, min(count * SIZE, room), room, cached_only)
        if len(found) == written < count * SIZE:  # go on with those that wait in memory
            found += bytes(self.tail[: count * SIZE - written])
        return found

    def next_file_offset(self, queue_offset: int) -> int:
        """The first offset of the file after the one that holds this offset."""
        per_file = self.mapped_files.file_bytes // SIZE
        return (queue_offset // per_file + 1) * per_file

    def entry(self, queue_offset: int, cached_only: bool = False) -> tuple[int, int, int]:
        """(phy_offset, size, tags_code) of one entry; sizes of 0 where there is none."""
        raw = self.read(queue_offset, 1, cached_only)
        return _unpack(raw) if len(raw) == SIZE else (0, 0, 0)

    def min_offset(self, log_first: int, cached_only: bool = False) -> int:
        """The first entry whose record is still in the log, which begins at `log_first`."""
        if self._min_for == log_first:
            return self._min_offset
        low, high = self.mapped_files.first // SIZE, self.max_offset
        if not self.mapped_files.bases:
            low = min(self.written_offset, high)
        while low < high:
            middle = (low + high) // 2
            phy_offset, size, _ = self.entry(middle, cached_only)
            # A filler with an offset stands for a lost message between others, not before them.
            if phy_offset < log_first or (
                size == consume_queue_entry.FILLER_SIZE and not phy_offset
            ):
                low = middle + 1
            else:
                high = middle
        assert 0 <= low <= self.max_offset
        self._min_for = log_first
        self._min_offset = low
        return low
