"""Walking through the whole records of a log, over damage, to the log's end.

Bytes that are no whole record are damage where whole records follow, and else the end: an
unfinished write that no sender had an answer for. Behind the durable end damage counts only while
the machine has run on since; when it went down, writes may be missing, and the first gap is the
end.
Changes nothing: recovery and `cometmq store verify` both walk this way, so they agree.
Java: CommitLog.checkMessageAndReturnSize, which ends at the first damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.log.log_reader import LogReader
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.wire.records.log_record import StoredRecord


class LostBytes(NamedTuple):
    """A part of the log that holds no whole record, between parts that do."""

    start: int
    end: int
    store_ms: int = 0
    """When the record before or behind it was stored."""


def start_by_time(reader: LogReader, mapped_files: MappedFileQueue, checkpoint: Checkpoint) -> int:
    """Where the newest file begins that the checkpoint's times cover; else where the log does.

    A start reads from there after a crash, where the checkpoint names no byte.
    """
    for base in reversed(mapped_files.bases):
        record = reader.at(base)
        if record is not None and record.store_ms <= checkpoint.safe_ms:
            return base
    return mapped_files.first


class LogWalk:
    """One walk. `at` moves on; `lost` collects the damage that was passed."""

    def __init__(
        self,
        reader: LogReader,
        checkpoint: Checkpoint,
        start: int,
        *,
        is_same_boot: bool,
    ) -> None:
        self._reader = reader
        self._checkpoint = checkpoint
        self._is_same_boot = is_same_boot
        self.at = start
        """Where the next record begins; behind the last one, the end of the log."""
        self.store_ms = 0
        """When the newest record passed was stored: times never fall along a log."""
        self.lost: list[LostBytes] = []

    def records(self) -> Iterator[StoredRecord]:
        """The whole records from here to the end, at which `at` then stands."""
        before = -1
        while True:
            assert self.at > before, "a walk goes forward"
            before = self.at
            record = self._reader.at(self.at)
            if record is not None:
                yield record
                self.at = record.phy_offset + record.size
                self.store_ms = record.store_ms
            elif (following := self._reader.next_file(self.at)) >= 0:
                self.at = following
            elif (behind := self.behind_damage()) is not None:
                self.lost.append(
                    LostBytes(self.at, behind.phy_offset, self.store_ms or behind.store_ms)
                )
                self.at = behind.phy_offset
            else:
                return

    def behind_damage(self) -> StoredRecord | None:
        """The record with which the log goes on behind damage at `at`; None: the log ends."""
        durable_end = self._checkpoint.dispatched
        is_durable = self.at < durable_end or self._is_same_boot
        if not is_durable and durable_end >= 0:
            return None
        behind = self._reader.behind(self.at)
        if behind is None or behind.store_ms < self.store_ms:
            return None  # left over from before an earlier crash
        return behind if is_durable or behind.store_ms < self._checkpoint.log_ms else None
