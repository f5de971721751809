"""Which files of a key index a start believes; it has the others built anew from the log.

A file is believed for its size, its head, and for beginning where the one before it ends; what is
inside it is not read. A start and `cometmq store verify` both ask here, so they agree. Changes
nothing. Java: IndexService.load, which drops what was not safe when its broker crashed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.wire.records.index_file_layout import HEADER_BYTES, decode_header

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.index.index_builder import KeyedRecordReader
    from cometmq.store.index.index_file import IndexFileLayout
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.wire.records.index_file_layout import IndexFileHeader

_LOOKED_AT = 32
"""Records behind the end of one file of which the first with keys must begin the next one."""


class TrustedIndexFiles(NamedTuple):
    """What a start makes of the files of an index, by their names."""

    kept: dict[int, IndexFileHeader]
    """Those it believes, the oldest first."""
    newer: list[int]
    """Those made after the checkpoint: they go, and nothing is wrong."""
    broken: list[int]
    """The first that it does not believe, and all after it."""
    why: str
    """Why it does not believe the first of these."""
    position: int = -1
    """The byte of the log up to which all is indexed; -1: what the last file says."""
    number: int = -1
    """Where the last file ends, whatever a crash left beyond; -1: as its head says."""


def view_index_files(
    files: Files,
    paths: dict[int, Path],
    file_layout: IndexFileLayout,
    checkpoint: Checkpoint,
    reader: KeyedRecordReader,
    log_first: int,
    log_end: int,
    *,
    was_stopped: bool,
) -> TrustedIndexFiles:
    """`paths`: the files by their names, the oldest first; `log_end`: as recovery finds it."""
    mark = checkpoint.index_mark
    if mark is not None and mark[2] > log_end:
        mark = None
    newer = [name for name in paths if mark is not None and name > mark[0]]
    names = [name for name in paths if name not in newer]
    kept: dict[int, IndexFileHeader] = {}
    why, before_end = "", -1
    for name in names:
        stat = files.stat(paths[name])
        head = _head_of(files, paths[name])
        size = -1 if stat is None else stat.size
        is_last = name == names[-1]
        why = _why_broken(head, size, file_layout, log_end, is_last=is_last)
        if not why and mark is not None and name == mark[0] and head.number < mark[1]:
            why = f"says it has {head.number} entries; by the checkpoint it has {mark[1]}"
        if not why and mark is None and not was_stopped and head.end_ms > checkpoint.index_ms:
            why = "was not safe when its broker crashed"
        if not why and _is_gap_before(head, before_end, reader, log_first):
            why = "does not begin where the one before it ends"
        if why:
            break
        kept[name] = head
        before_end = head.end_phy
    broken = names[len(kept) :]
    last = next(reversed(kept), 0)
    if mark is None or last != mark[0]:
        return TrustedIndexFiles(kept, newer, broken, why)
    return TrustedIndexFiles(kept, newer, broken, why, mark[2], mark[1])


def _head_of(files: Files, path: Path) -> IndexFileHeader:
    file = files.open(path, 0)
    try:
        return decode_header(file.read(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
    finally:
        file.close()


def _why_broken(
    head: IndexFileHeader, size: int, file_layout: IndexFileLayout, log_end: int, *, is_last: bool
) -> str:
    """Why size and head of a file cannot be true; empty: they can."""
    slots, entries, expected = file_layout.slots, file_layout.entries, file_layout.file_bytes
    if size != expected:
        return (
            f"has {size} bytes, not {expected} as with {slots} slots (maxHashSlotNum) and "
            f"{entries} entries (maxIndexNum)"
        )
    is_within = head.number <= 1 or head.end_phy < log_end
    if file_layout.has_sound(head, is_last=is_last) and is_within:
        return ""
    return (
        f"says it has {head.number} entries, for bytes {head.begin_phy} to {head.end_phy} of the "
        "log, which cannot be"
    )


def _is_gap_before(
    head: IndexFileHeader, before_end: int, reader: KeyedRecordReader, log_first: int
) -> bool:
    """Whether a file is missing before this one: the log has keys from in between."""
    at = before_end if before_end >= 0 else log_first
    for _ in range(_LOOKED_AT):
        if head.number <= 1 or head.begin_phy <= at:
            return False
        entries, at = reader.read(at, head.begin_phy, 1)
        if any(place != before_end for place in entries.phy_offsets):
            return True
    return False
