"""The two ids of a message: where it is stored (offset id) and who made it (unique key).

Offset id: hex of store host (4 or 16 bytes), port i32, phy_offset i64; 32 or 56 digits.
Unique key: hex of the producer's IP, low 16 bits of its pid, i32 that tells processes of one host
apart, milliseconds since the month began (UTC here), u16 counter; 32 or 56 digits.
Time, pid and address are arguments.
Java: MessageDecoder.createMessageId, MessageClientIDSetter.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count, islice
from struct import Struct
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

_OFFSET = Struct(">q")
_PROCESS = Struct(">HI")
_HEX = "0123456789ABCDEF"
_PART = 256
"""Keys that are joined at a time: few parts are of two blocks of 4,096 numbers."""
_DIGITS = [f"{number:03X}" for number in range(0x1000)]


def offset_id(store_host: bytes, phy_offset: int) -> str:
    """The id that names a record's broker and its byte in the broker's log."""
    assert phy_offset >= 0, "a log begins at byte 0"
    return (store_host + _OFFSET.pack(phy_offset)).hex().upper()


def offset_ids(store_host: bytes, phy_offsets: Iterable[int]) -> str:
    """The ids of several records, joined by commas."""
    shape = store_host.hex().upper() + "%016X,"
    places = tuple(phy_offsets)
    return (shape * len(places) % places)[:-1]


def parse_offset_id(text: str) -> tuple[bytes, int]:
    """The packed store host and the phy_offset of an offset id; ProtocolError for another text."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
        raise ProtocolError(f"{text[:64]!r} is not a message id: it needs 32 or 56 hex digits")
    return raw[:-8], _OFFSET.unpack_from(raw, len(raw) - 8)[0]


def _month_bounds(now_ms: int) -> tuple[int, int]:
    """Where the month of `now_ms` begins and where the next one does, both in ms, UTC."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    end = begin.replace(year=year, month=month)
    return int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000


class UniqKeyGenerator:
    """Makes unique keys for one producer process. Safe to call from several threads."""

    __slots__ = ("_block", "_counter", "_month", "_prefix", "key_bytes")

    def __init__(self, host: bytes, pid: int, seed: int) -> None:
        """`host`: packed IP (4 or 16 bytes). `seed`: any number that differs between processes."""
        assert len(host) in (4, 16), f"an IP address has 4 or 16 bytes, not {len(host)}"
        self._prefix = (host + _PROCESS.pack(pid & 0xFFFF, seed & 0xFFFFFFFF)).hex().upper()
        self._counter = count()
        self._month = (0, 0)
        self.key_bytes = len(self._prefix) + 12
        """How long a key is."""
        self._block = (-1, -1, "")  # one tuple: another thread sees all of it or nothing

    def next_key(self, now_ms: int) -> str:
        """The next key: 32 digits (IPv4) or 56 (IPv6)."""
        number = next(self._counter)
        at_ms, block, text = self._block
        if now_ms != at_ms or number >> 12 != block:
            text = self._begin(now_ms, number >> 12)
        return text + _DIGITS[number & 0xFFF]

    def _begin(self, now_ms: int, block: int) -> str:
        """The common prefix of all keys of one ms and one block of 4,096 numbers."""
        begin, end = self._month
        if not begin <= now_ms < end:
            begin, end = self._month = _month_bounds(now_ms)
        text = f"{self._prefix}{(now_ms - begin) & 0xFFFFFFFF:08X}{block & 0xF:X}"
        self._block = (now_ms, block, text)
        return text

    def next_keys(self, now_ms: int, how_many: int) -> list[str]:
        """The next keys, all of one length."""
        text, numbers, in_row = self._take(now_ms, how_many)
        if native.c is not None and in_row:
            return native.c.number_keys(text, numbers[0] & 0xFFF, how_many)
        return [text + end for end in _ends(numbers, in_row=in_row)]

    def joined_keys(self, now_ms: int, how_many: int) -> bytes:
        """The next keys, all of one length, end to end: a fifth of the time of a list."""
        parts: list[str] = []
        for at in range(0, how_many, _PART):
            text, numbers, in_row = self._take(now_ms, min(_PART, how_many - at))
            parts += (text, text.join(_ends(numbers, in_row=in_row)))
        return "".join(parts).encode()

    def _take(self, now_ms: int, how_many: int) -> tuple[str, list[int], bool]:
        """What the next keys have in common, their numbers, and whether these are in a row.

        Of numbers in a row and in one block three digits are left, of others four.
        """
        numbers = list(islice(self._counter, how_many))
        first, last = numbers[0], numbers[-1]
        at_ms, block, text = self._block
        if now_ms != at_ms or first >> 12 != block:
            text = self._begin(now_ms, first >> 12)
        is_one_block = (first & 0xFFF) + how_many <= 0x1000
        if is_one_block and last - first == how_many - 1:  # as they are but for threads
            return text, numbers, True
        return text[:-1], numbers, False


def _ends(numbers: list[int], *, in_row: bool) -> list[str]:
    """The digits of these numbers that are left, as `_take` says."""
    if in_row:
        at = numbers[0] & 0xFFF
        return _DIGITS[at : at + len(numbers)]
    return [_HEX[one >> 12 & 0xF] + _DIGITS[one & 0xFFF] for one in numbers]
