"""Hot. One queue of one topic: 20 bytes a message that say where in the log it lies.

New entries stay in memory until `spill` writes them to the queue's files, in the background; the
log holds all they say, so nothing is lost with them. Refuses to know tags and records.
Invariants: next_offset counts what has been placed, max_offset what readers may see; entries
[written_offset, max_offset) are in `tail`, those before in the files.
Layout: `wire/consume_queue_entry.py`. Java: ConsumeQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire import consume_queue_entry

if TYPE_CHECKING:
    from cometmq.store.log.mapped_file_queue import FileRow

pack = consume_queue_entry.ENTRY.pack
_unpack = consume_queue_entry.ENTRY.unpack
SIZE = consume_queue_entry.SIZE


class ConsumeQueue:
    """The entries of one queue. One loop owns it."""

    __slots__ = (
        "_min_for",
        "_min_offset",
        "max_offset",
        "next_offset",
        "queue_id",
        "row",
        "tail",
        "topic",
        "written_offset",
    )

    def __init__(self, topic: str, queue_id: int, row: FileRow) -> None:
        self.topic, self.queue_id, self.row = topic, queue_id, row
        self.tail = bytearray()
        self.next_offset = self.max_offset = self.written_offset = 0
        self._min_offset = 0
        self._min_for = -1

    def begin_at(self, queue_offset: int) -> None:
        """Take this as the end of the queue; what the files hold before it is good."""
        self.tail.clear()
        self.next_offset = self.max_offset = self.written_offset = queue_offset
        self._min_for = -1

    def append(self, phy_offset: int, size: int, tags_code: int) -> None:
        """Show one message more to readers."""
        self.tail += pack(phy_offset, size, tags_code)
        self.max_offset += 1

    def spill(self) -> list[int]:
        """Write the waiting entries; the bases of the files they went to. OSError: they still wait.

        What an unclean stop left beyond the last entry is overwritten by zeros when recovery calls
        `cut`, never here.
        """
        at, done = self.written_offset * SIZE, 0
        row, tail, bases = self.row, self.tail, []
        if not row.bases:
            self._fill_before(at)
        while done < len(tail):
            room = row.file_bytes - at % row.file_bytes
            piece = bytes(tail[done : done + room])
            row.write(at, piece)
            bases.append(row.base_of(at))
            at += len(piece)
            done += len(piece)
        self.written_offset = at // SIZE
        tail.clear()
        return bases

    def _fill_before(self, at: int) -> None:
        """Mark the places before a queue's first entry, where its file does not begin with it."""
        if room := at % self.row.file_bytes:
            self.row.write(at - room, consume_queue_entry.FILLER * (room // SIZE))

    def read(self, queue_offset: int, count: int) -> bytes:
        """Up to `count` entries from `queue_offset` on; fewer where a file ends."""
        count = min(count, self.max_offset - queue_offset)
        index = queue_offset - self.written_offset
        if index >= 0:
            return bytes(self.tail[index * SIZE : (index + count) * SIZE])
        at = queue_offset * SIZE
        row = self.row
        room, written = row.file_bytes - at % row.file_bytes, -index * SIZE
        room = min(room, written)  # what lies beyond is not valid yet
        found = row.read_ahead(at, min(count * SIZE, room), room)
        if len(found) == written < count * SIZE:  # go on with those that wait in memory
            found += bytes(self.tail[: count * SIZE - written])
        return found

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """(phy_offset, size, tags_code) of one entry; sizes of 0 where there is none."""
        raw = self.read(queue_offset, 1)
        return _unpack(raw) if len(raw) == SIZE else (0, 0, 0)

    def min_offset(self, log_first: int) -> int:
        """The first entry whose record is still in the log, which begins at `log_first`."""
        if self._min_for == log_first:
            return self._min_offset
        low, high = self.row.first // SIZE, self.max_offset
        if not self.row.bases:
            low = min(self.written_offset, high)
        while low < high:
            middle = (low + high) // 2
            phy_offset, size, _ = self.entry(middle)
            # A filler with an offset stands for a lost message between others, not before them.
            if phy_offset < log_first or (
                size == consume_queue_entry.FILLER_SIZE and not phy_offset
            ):
                low = middle + 1
            else:
                high = middle
        self._min_for, self._min_offset = log_first, low
        return low
