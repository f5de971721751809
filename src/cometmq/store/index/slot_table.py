"""Hot. The slots of one file of the key index, all of them in memory while entries are added.

Words are kept as they lie in the file: entries take them over unchanged, and what is written is
copied. One flat piece of memory, for in pages of their own each slot took three misses of the cache
and not one; the system gives its pages when they are first used, which an array would wait for.
Belongs to one `IndexFile`. Java: IndexFile.
"""

from __future__ import annotations

from array import array
from mmap import mmap
from struct import pack, unpack
from sys import byteorder
from typing import TYPE_CHECKING

from cometmq.wire.records.index_file_layout import HEADER, HEADER_BYTES, SLOT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.wire.records.index_file_layout import IndexFileHeader

PIECE_BYTES = 1 << 16
"""Slots that are read at once: 0.3 ms with looking at each."""
_FROM = HEADER_BYTES // SLOT_BYTES
"""Where the slots begin, in slots."""
_FEW = 12


class SlotTable:
    """The head and the slots of a file."""

    __slots__ = ("_memory", "_slots", "_words")

    def __init__(self, slots: int) -> None:
        """A new one: no slot leads anywhere."""
        self._slots = slots
        self._memory = mmap(-1, HEADER_BYTES + slots * SLOT_BYTES)
        self._words = memoryview(self._memory).cast("I")

    @property
    def words(self) -> memoryview:
        """The slots, as they lie in the file."""
        return self._words[_FROM:]

    def load(self, read: Callable[[int, int], bytes], count: int) -> None:
        """Take over what the file has, but for what is no number below `count`.

        `read` gets place and length, 64 KiB each time. Measured: 0.15 s for 5 million slots.
        """
        end = len(self._memory)
        for at in range(0, end, PIECE_BYTES):
            raw = read(at, min(PIECE_BYTES, end - at))
            if raw.count(0) == len(raw):
                continue
            numbers = array("I", raw + bytes(-len(raw) % SLOT_BYTES))
            begin = at // SLOT_BYTES
            self._words[begin : begin + len(numbers)] = memoryview(numbers)
            if byteorder == "little":
                numbers.byteswap()
            if max(numbers) >= count:
                for place, number in enumerate(numbers, begin):
                    if number >= count and place >= _FROM:
                        self._words[place] = 0

    def newest(self, hashed: int) -> int:
        """The number of the newest entry in the slot of a hash, 0 for none."""
        word = self._words[hashed % self._slots + _FROM]
        return int(unpack(">I", pack("=I", word))[0])

    def lead(self, slot: int, number: int) -> None:
        """Have one slot lead to this entry."""
        self._words[slot + _FROM] = unpack("=I", pack(">I", number))[0]

    def chain(self, hashes: array[int], first: int) -> array[int]:
        """Have slots lead to new entries from number `first` on; what they led to, as in the file.

        A hash that comes at regular steps is that of a tag: what its slot led to is known without
        looking, which saves a third.
        """
        slots, count = self._slots, len(hashes)
        numbers = array("I", range(first, first + count))
        if byteorder == "little":
            numbers.byteswap()
        begin, step = _regular(hashes)
        if step:
            others, other_numbers, own = hashes[:], numbers[:], numbers[begin::step]
            del others[begin::step], other_numbers[begin::step]
            places = [hashed % slots + _FROM for hashed in others]
            tag = hashes[begin] % slots + _FROM
            if tag not in places:
                befores = array("I", bytes(count * SLOT_BYTES))
                befores[begin::step] = array("I", (self._words[tag],)) + own[:-1]
                self._words[tag] = own[-1]
                found = array("I", self._swap(places, other_numbers))
                for place in range(step - 1):
                    befores[place + (place >= begin) :: step] = found[place :: step - 1]
                return befores
        return array("I", self._swap([hashed % slots + _FROM for hashed in hashes], numbers))

    def _swap(self, places: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """Put a number into each place, one after the other; what was there."""
        words, befores = self._words, list[int]()
        add = befores.append
        for place, number in zip(places, numbers, strict=True):
            add(words[place])
            words[place] = number
        return befores

    def copy(self, head: IndexFileHeader, begin: int, end: int) -> bytes:
        """These bytes of the file's begin, with this head."""
        if not begin:
            HEADER.pack_into(self._memory, 0, *head)
        return self._memory[begin:end]

    def place_of(self, hashed: int) -> int:
        """Which byte of the file the slot of a hash begins at."""
        return (hashed % self._slots + _FROM) * SLOT_BYTES


def _regular(hashes: array[int]) -> tuple[int, int]:
    """Where one begins that is every, every second or every third to the end; (0, 0) for none."""
    for step in (1, 2, 3) if len(hashes) > _FEW else ():
        begin = (len(hashes) - 1) % step
        if hashes[-1] == hashes[-1 - step]:
            column = hashes[begin::step]
            if column == array("I", hashes[-1:]) * len(column):
                return begin, step
    return 0, 0
