"""What a handler saw, message by message: records in one append-only file a process.

Owns the layout and the reading in order of time over all processes; refuses to judge what it reads.
Invariants: the records of one handler call are written by one append before the call returns, so
before its offsets can be committed, and kill -9 takes at most calls that will be delivered again;
a torn record at the end is not read. The clock is CLOCK_MONOTONIC, one for all processes of a
machine, so the records of different processes can be put in order.
Layout, big-endian, 68 bytes: begin ns int64 | took ns uint32 | latency ms int32 | queue offset
uint32 | sequence uint32 | queue id uint16 | kind uint8 | refused uint8 | sharding key 20 s |
flight 20 s. Because the begin comes first, raw records sort by time as bytes.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

RECORD = Struct(">qIiIIHBB20s20s")
_TOOK_MAX = (1 << 32) - 1
_LATENCY_MAX = (1 << 31) - 1


class Observation(NamedTuple):
    """One message as one handler call saw it."""

    begin_ns: int
    """CLOCK_MONOTONIC when the handler turned to this message."""
    took_ns: int
    """Until it was done with it; 4.29 s and more are written as that."""
    latency_ms: int
    """From the producer's time stamp to the handler."""
    queue_offset: int
    sequence: int
    queue_id: int
    kind: int
    refused: int
    """1 when the handler raised because of this message."""
    sharding_key: bytes
    """Padded with zero bytes to 20, like the flight."""
    flight: bytes


class Journal:
    """The file of one process. `append` may be called from several threads at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, observations: Iterable[Observation]) -> None:
        """Write the records of one handler call with one system call."""
        os.write(self._file, b"".join([packed(one) for one in observations]))

    def close(self) -> None:
        """Close the file; what was appended is in the page cache at the latest since then."""
        os.close(self._file)


def packed(one: Observation) -> bytes:
    """The record of one observation."""
    begin_ns, took_ns, latency_ms, *rest = one
    took_ns = min(max(took_ns, 0), _TOOK_MAX)
    latency_ms = min(max(latency_ms, -_LATENCY_MAX), _LATENCY_MAX)
    return RECORD.pack(begin_ns, took_ns, latency_ms, *rest)


def count(path: Path) -> int:
    """How many whole records a file has; 0 when there is none yet."""
    try:
        return path.stat().st_size // RECORD.size
    except FileNotFoundError:
        return 0


def in_order_of_time(paths: Sequence[Path]) -> Iterator[tuple[int, Observation]]:
    """(index of the process's file, observation) by the time handling began."""
    files = [path.read_bytes() for path in paths]
    size = RECORD.size
    marked = [
        (data[at : at + size], index)
        for index, data in enumerate(files)
        for at in range(0, len(data) - size + 1, size)
    ]
    files.clear()
    marked.sort()
    unpack = RECORD.unpack
    for record, index in marked:
        yield index, Observation._make(unpack(record))
