"""How far the timers of a store are: `config/timercheck`.

4096 bytes, big-endian i64: at 0 the next slot to deliver (ms), at 8 where the log of timers was
flushed to, at 16 and 24 the next entry of the timer topic's queue to take in, at 32 a data version
of three. Behind these, where Apache's broker writes nothing, a mark of ours with a checksum over
all: i64 the place in the commit log before which nothing due since lies, and i32 the precision. An
Apache broker that takes the store over leaves a mark that no longer fits, so it is not believed.
Invariant: the file is replaced in one step. Java: TimerCheckpoint.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ProtocolError, StoreCorrupt

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

FILE_BYTES = 4_096
_APACHE = Struct(">qqqqqqq")
_MARK = Struct(">8sqi")
_CHECKSUM = Struct(">I")
_MAGIC = b"COMETMQ1"


class TimerProgress(NamedTuple):
    """How far the timers are."""

    next_ms: int
    """The next slot to deliver."""
    log_end: int
    """The records of the log of timers before this place are durable."""
    queue_offset: int
    """The next message of the timer topic to take in."""
    scan_from: int | None = None
    """Messages that were due at `next_ms` or later are stored from this byte of the commit log on,
    if they were delivered; None: not known, for another broker wrote this."""
    precision_ms: int | None = None


def decode_progress(raw: bytes) -> TimerProgress:
    """What the file, or a master's answer to GET_TIMER_CHECK_POINT, says.

    Raises ProtocolError where it is too short.
    """
    if len(raw) < _APACHE.size:
        raise ProtocolError(f"it has {len(raw)} bytes, less than {_APACHE.size}")
    next_ms, log_end, own, master, *_ = _APACHE.unpack_from(raw)
    progress = TimerProgress(next_ms, log_end, min(own, master) if master else own)
    at = _APACHE.size + _MARK.size
    if len(raw) < at + _CHECKSUM.size:
        return progress
    magic, scan_from, precision_ms = _MARK.unpack_from(raw, _APACHE.size)
    if magic != _MAGIC or _CHECKSUM.unpack_from(raw, at)[0] != zlib.crc32(raw[:at]):
        return progress
    return progress._replace(scan_from=scan_from, precision_ms=precision_ms)


def encode_progress(progress: TimerProgress, now_ms: int, counter: int) -> bytes:
    """The bytes for `decode_progress`, Apache's 56 and our mark."""
    assert progress.scan_from is not None, "a broker of ours knows where to look"
    offset = progress.queue_offset
    raw = _APACHE.pack(progress.next_ms, progress.log_end, offset, offset, 0, now_ms, counter)
    raw += _MARK.pack(_MAGIC, progress.scan_from, progress.precision_ms or 0)
    return raw + _CHECKSUM.pack(zlib.crc32(raw))


class TimerCheckpoint:
    """The file. `write` blocks; from any thread, one at a time."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path

    def read(self) -> TimerProgress | None:
        """What was written last; None: nothing ever was. StoreCorrupt: the file is damaged."""
        raw = self._files.read(self.path)
        try:
            return None if raw is None else decode_progress(raw)
        except ProtocolError as problem:
            raise StoreCorrupt(f"{self.path} is damaged: {problem}") from None

    def write(self, progress: TimerProgress, now_ms: int, counter: int) -> None:
        """Replace the file, durably. OSError: the former one is kept."""
        raw = encode_progress(progress, now_ms, counter)
        fresh = self.path.with_name(self.path.name + ".tmp")
        self._files.make_dir(self.path.parent)
        self._files.write(fresh, raw.ljust(FILE_BYTES, b"\0"))
        self._files.rename(fresh, self.path)
        self._files.sync_dir(self.path.parent)
