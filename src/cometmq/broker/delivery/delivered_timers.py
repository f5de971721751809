"""The timer messages that were delivered after the checkpoint of the timers, before a kill.

They lie in the commit log behind the byte that the checkpoint names, each with TIMER_DEQUEUE_MS.
Bound: what was delivered between two checkpoints, a few seconds. Java: none; there they come twice.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.message_store import MessageStore
    from cometmq.wire.records.log_record import StoredRecord

    _Key = tuple[bytes, ...]

DEQUEUE_MS = b"TIMER_DEQUEUE_MS"
_KEYS = (b"TIMER_OUT_MS", b"REAL_TOPIC", b"REAL_QID", b"UNIQ_KEY", b"TIMER_ROLL_TIMES")
_CHUNK_BYTES = 1 << 20


class DeliveredTimers:
    """Counts what lies behind a byte of the log; `take` uses it up."""

    def __init__(self, store: MessageStore, scan_from: int | None) -> None:
        self._left: Counter[_Key] = Counter()
        if scan_from is not None:
            for record in _records(store, max(scan_from, store.min_phy_offset)):
                if DEQUEUE_MS + b"\x01" in record.properties:
                    self._left[_key_of(record.topic, record.body_crc, record.properties)] += 1

    def __bool__(self) -> bool:
        """Return whether any is left."""
        return bool(self._left)

    def take(self, topic: str, body_crc: int, raw: bytes) -> bool:
        """Whether a message was delivered to a topic; uses up one. `raw`: as it would be put."""
        if not self._left:
            return False
        key = _key_of(topic, body_crc, raw)
        if not self._left[key]:
            return False
        self._left[key] -= 1
        return True

    def clear(self) -> None:
        """Forget the rest: nothing that comes now was delivered before the start."""
        self._left.clear()


def _key_of(topic: str, body_crc: int, raw: bytes) -> _Key:
    found = [properties.find(raw, key) or b"" for key in _KEYS]
    return (topic.encode(), b"%d" % body_crc, *found)


def _records(store: MessageStore, start: int) -> Iterator[StoredRecord]:
    """The records of the log from a byte on, where one begins."""
    at, wanted = start, _CHUNK_BYTES
    while at < store.max_phy_offset:
        raw, used, size = store.read_raw(at, wanted), 0, 0
        while len(raw) - used >= stored.BLANK_SIZE:
            size, magic = stored.BLANK.unpack_from(raw, used)
            if not 0 < size <= len(raw) - used:
                break
            if magic != stored.MAGIC_BLANK:
                with suppress(ProtocolError):  # who reads it reports the damage
                    yield stored.decode(raw, used)
            used += size
        if not used and size <= wanted:
            return  # no record begins here: the mark is of another log
        at, wanted = at + used, max(_CHUNK_BYTES, 0 if used else size)
