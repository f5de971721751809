"""The wheel of timers: for each moment the chain of its records in the log of timers.

The file `timerwheel` has twice as many slots as seven days have seconds, whatever the precision; a
moment has the slot of its number modulo that. A slot, big-endian: i64 moment in units of the
precision, i64 place of its first record, i64 of its last, i32 number of timers, i32 0. Slots whose
time has come stay as they are. Here only those that wait are kept in memory, however many timers
each has; `changed` are those that the file does not have yet.
Invariant: the file is written by `write` only, so that the order of what is durable is the
caller's. Java: TimerWheel, Slot.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile

_SLOT = Struct(">qqqii")
SLOTS = 2 * 7 * 86_400
FILE_BYTES = SLOTS * _SLOT.size
_CHUNK = _SLOT.size << 12
_HOLE = bytes(_CHUNK)
"""What most of a wheel is."""


class Slot(NamedTuple):
    """The timers of one moment."""

    first: int
    """The place of the first record in the log of timers."""
    last: int
    timers: int


class TimerWheel:
    """The slots that wait, by their time in ms. Belongs to the loop, but for `write`."""

    def __init__(self, files: Files, path: Path, precision_ms: int) -> None:
        self._files = files
        self._path = path
        self._precision_ms = precision_ms
        self.slots: dict[int, Slot] = {}
        self.changed: dict[int, Slot] = {}

    def load(self, from_ms: int) -> None:
        """Read the slots from a time on; StoreCorrupt: the file is no wheel of this precision."""
        stat = self._files.stat(self._path)
        if stat is None:
            return
        if stat.size not in (0, FILE_BYTES):
            raise StoreCorrupt(
                f"{self._path} has {stat.size} bytes, a wheel of timers has {FILE_BYTES}"
            )
        precision_ms = self._precision_ms
        for unit, slot in _read_slots(self._files, self._path, stat.size):
            slot_ms = unit * precision_ms
            if slot_ms >= from_ms:
                self.slots[slot_ms] = slot
        self._check_precision(from_ms)

    def _check_precision(self, from_ms: int) -> None:
        span_ms = SLOTS * self._precision_ms
        if any(slot_ms - from_ms > span_ms for slot_ms in self.slots):
            raise StoreCorrupt(
                f"the timers of {self._path} were written with another precision than "
                f"{self._precision_ms} ms: set timerPrecisionMs as it was"
            )

    def put(self, slot_ms: int, slot: Slot) -> None:
        """Set the timers of a moment."""
        self.slots[slot_ms] = self.changed[slot_ms] = slot

    def write(self, changed: Mapping[int, Slot]) -> None:
        """Make these slots durable; blocks, from any thread. OSError: some may be written."""
        file = self._files.open(self._path, FILE_BYTES)
        try:
            for slot_ms, slot in changed.items():
                self._write_slot(file, slot_ms, slot)
            file.sync()
        finally:
            file.close()
        self._files.sync_dir(self._path.parent)

    def _write_slot(self, file: OpenFile, slot_ms: int, slot: Slot) -> None:
        unit = slot_ms // self._precision_ms
        file.write(unit % SLOTS * _SLOT.size, _SLOT.pack(unit, *slot, 0))


def _read_slots(files: Files, path: Path, size: int) -> Iterator[tuple[int, Slot]]:
    """The slots of a file that were ever used: their moments, in units, and what they hold."""
    file = files.open(path, 0)
    try:
        for at in range(0, size, _CHUNK):
            chunk = file.read(at, min(_CHUNK, size - at))
            if chunk == _HOLE[: len(chunk)]:
                continue
            for unit, first, last, timers, _ in _SLOT.iter_unpack(chunk):
                if unit > 0 and last >= 0:
                    yield unit, Slot(first, last, timers)
    finally:
        file.close()
