"""What a handler observed, message by message: one append-only file of records for each process.

Owns the layout, and merges the files of all processes in time order.
Invariants: the records of one handler call are appended with one write before the call returns, so
before its offsets can be committed; kill -9 loses only calls whose messages are delivered again. A
torn record at the end of a file is ignored. All processes of a machine share CLOCK_MONOTONIC, so
their records can be ordered.
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
    """CLOCK_MONOTONIC when the handler began this message."""
    took_ns: int
    """How long the handler took; at most 4.29 s, the largest value of the field."""
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


class ObservationFile:
    """The file of one process. `append` is safe from several threads at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, observations: Iterable[Observation]) -> None:
        """Write the records of one handler call with one system call."""
        os.write(self._file, b"".join([packed(one) for one in observations]))

    def close(self) -> None:
        """Close the file."""
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


def ordered_by_time(paths: Sequence[Path]) -> Iterator[tuple[int, Observation]]:
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
