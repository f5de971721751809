"""Timers that Apache's broker kept in a store and has not delivered: a start would hide them.

Looked at before a start changes anything, by Apache's own notes. `config/timercheck`, big-endian:
i64 at 0 the next time to deliver, ms; i64 at 16 the next entry of queue 0 of rmq_sys_wheel_timer
that goes into the wheel. `timerwheel`: slots of 32 bytes: i64 time in units of timerPrecisionMs,
i64 first and i64 last place in `timerlog`, i32 number of timers, i32 nothing. A slot stays as it is
when its timers are delivered, so only its time tells. A store without both files has no timers.
Java: TimerMessageStore, TimerWheel, TimerCheckpoint, Slot.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from cometmq.errors import StoreCorrupt
from cometmq.model.topic import TIMER_TOPIC
from cometmq.store.log.mapped_file_queue import NAME_DIGITS, is_number
from cometmq.store.queues.queue_directories import queue_directory
from cometmq.wire.records.consume_queue_entry import ENTRY, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.recovery.store_directory import StoreDirectory

_NOTES = Struct(">qqq")
_SLOT = Struct(">qqqii")
_CHUNK = _SLOT.size << 15


def refuse_undelivered_timers(files: Files, directory: StoreDirectory) -> None:
    """Raise StoreCorrupt where timers wait, saying how many."""
    wheel, notes = directory.root / "timerwheel", directory.config / "timercheck"
    raw = files.read(notes)
    if raw is None and files.stat(wheel) is None:
        return
    next_ms, _, next_entry = _NOTES.unpack_from((raw or b"").ljust(_NOTES.size, b"\0"))
    queued = _entries(files, queue_directory(directory.consume_queue, TIMER_TOPIC, 0)) - next_entry
    waiting = sum(_waiting(files, wheel, next_ms)) + max(0, queued)
    if waiting:
        raise StoreCorrupt(
            f"the store {directory.root} holds {waiting} timer messages that Apache's broker has "
            "not delivered, and CometMQ keeps no timers; let Apache's broker deliver them first, "
            f"or, to give them up, move timerwheel, timerlog and config/timercheck out of it"
        )


def _waiting(files: Files, wheel: Path, next_ms: int) -> Iterator[int]:
    """The number of timers of each slot whose time has not come."""
    stat = files.stat(wheel)
    if stat is None:
        return
    file = files.open(wheel, 0)
    try:
        for at in range(0, stat.size, _CHUNK):
            chunk = file.read(at, min(_CHUNK, stat.size - at))
            if not chunk.strip(b"\0"):
                continue  # most of a wheel is a hole
            whole = chunk[: len(chunk) - len(chunk) % _SLOT.size]
            for time, _, _, count, _ in _SLOT.iter_unpack(whole):
                # The file does not say timerPrecisionMs, but all times are near each other.
                if count > 0 and time > 0 and time * max(1, round(next_ms / time)) >= next_ms:
                    yield count
    finally:
        file.close()


def _entries(files: Files, queue: Path) -> int:
    """Where the queue ends: in its last file, after the last entry that has a size."""
    names = [name for name in files.names(queue) if is_number(name, NAME_DIGITS)]
    if not names:
        return 0
    raw = files.read(queue / names[-1]) or b""
    whole = raw[: len(raw) - len(raw) % SIZE]
    found = sum(1 for _, size, _ in ENTRY.iter_unpack(whole) if size > 0)
    return int(names[-1]) // SIZE + found
