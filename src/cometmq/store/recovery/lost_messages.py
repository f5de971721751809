"""Which messages the log must hold, and which a part of it held, by the entries that name them.

Says up to which byte the log was complete, and names what is lost with topic, queue and offsets.
Changes nothing. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.queues.queue_checksums import NOT_KNOWN
from cometmq.store.queues.raw_entries import raw_entry
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.queues.queue_checksums import QueueChecksums
    from cometmq.store.recovery.checkpoint import Checkpoint

    QueueFiles = Mapping[tuple[str, int], MappedFileQueue]

_NAMED_MAX = 8


class LostMessages(NamedTuple):
    """Messages of one queue, from an offset up to another."""

    topic: str
    queue_id: int
    first: int
    end: int

    def __str__(self) -> str:
        """Name them in a few words."""
        last = f" to {self.end - 1}" if self.end - self.first > 1 else ""
        return f"{self.topic} queue {self.queue_id} offset {self.first}{last}"


class ExpectedLogEnd(NamedTuple):
    """Up to which byte the log must reach, and where its newest record begins; -1: not known."""

    newest: int
    end: int


def known_end(
    checkpoint: Checkpoint,
    queue_files: QueueFiles,
    log_files: MappedFileQueue,
    *,
    was_stopped: bool,
    is_same_boot: bool,
) -> ExpectedLogEnd:
    """Say how far the log came: by the checkpoint, and by the entries where no write was lost.

    An entry is written after its record, so a record with an entry was there. Where the machine
    went down, the entry may be on disk and the record not.
    """
    found = ExpectedLogEnd(checkpoint.newest, checkpoint.dispatched if checkpoint.is_known else -1)
    assert found.newest <= found.end, "the newest record lies behind the end"
    if not (was_stopped or is_same_boot):
        return found
    limit = log_files.end + log_files.file_bytes  # what lies beyond is no place, but damage
    for files in queue_files.values():
        place, size, _ = raw_entry(files, _search(files, lambda _: False) - 1)
        if found.end <= place < limit and stored.FIXED_BYTES < size <= log_files.file_bytes:
            found = ExpectedLogEnd(place, place + size)
    return found


def messages_between(queue_files: QueueFiles, start: int, end: int) -> list[LostMessages]:
    """The messages whose entries name bytes [start, end) of the log."""
    assert start <= end, "a range ends before it begins"
    found = []
    for (topic, queue_id), files in sorted(queue_files.items()):
        first = _search(files, lambda place: place >= start)
        behind = _search(files, lambda place: place >= end)
        if first < behind:
            found.append(LostMessages(topic, queue_id, first, behind))
    return found


def named(lost: list[LostMessages]) -> str:
    """How many they are, and the first few."""
    if not lost:
        return "no queue names a message there"
    count = sum([each.end - each.first for each in lost])
    more = f", and in {len(lost) - _NAMED_MAX} more queues" if len(lost) > _NAMED_MAX else ""
    return f"{count} messages: {', '.join(map(str, lost[:_NAMED_MAX]))}{more}"


def lost_end(queue_files: QueueFiles, directory: Path, end: int, durable_end: int) -> str:
    """What a start says that refuses a log which lacks its end."""
    lost = named(messages_between(queue_files, end, durable_end))
    return (
        f"the log {directory} ends at byte {end} and was written up to byte {durable_end}: the "
        f"last {durable_end - end} bytes are lost ({lost}). Bring its files back from a "
        "backup, or give these messages up with `cometmq store repair --accept-loss`"
    )


def lost_begin(log_first: int, checksums: QueueChecksums) -> str:
    """What is said where files before the log's first one have gone; else empty.

    Those that retention deletes are not called so: that they go is written down before.
    """
    if checksums.log_first == NOT_KNOWN or log_first <= checksums.log_first:
        return ""
    return (
        f"the log begins at byte {log_first}, and began at byte {checksums.log_first}: the "
        "messages of the files in between are lost"
    )


def cut_files(log_files: MappedFileQueue) -> list[tuple[Path, int]]:
    """The files of the log, but for the newest, that are too short, and how long they are."""
    found = []
    for base in log_files.bases[:-1]:
        path = log_files.path_of(base)
        stat = log_files.files.stat(path)
        if stat is not None and stat.size < log_files.file_bytes:
            found.append((path, stat.size))
    return found


def _search(files: MappedFileQueue, is_behind: Callable[[int], bool]) -> int:
    """The first entry that is behind, or that is none."""
    low, high = files.first // SIZE, files.end // SIZE
    while low < high:
        middle = (low + high) // 2
        place, size, _ = raw_entry(files, middle)
        is_filler = size == FILLER_SIZE and not place
        if not is_filler and (size <= 0 or is_behind(place)):
            high = middle
        else:
            low = middle + 1
    return low
