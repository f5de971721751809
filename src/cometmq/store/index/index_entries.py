"""Hot. Entries for the key index in the order of the log, each field of all of them by itself."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class IndexEntries:
    """What the index is to hold; the first three fields are equally long."""

    hashes: array[int]
    """0 to 2^31 - 1, as `key_hash` gives them, in words of 4 bytes."""
    phy_offsets: array[int]
    """Where the record begins that has the key, in words of 8 bytes."""
    store_times: array[int]
    """When it was stored, ms, in words of 8 bytes."""
    moments: set[int]
    """All times that occur, and perhaps others: there are few. Not kept where C files entries."""

    @property
    def count(self) -> int:
        """How many entries."""
        return len(self.hashes)

    def add(self, hashes: Iterable[int], phy_offset: int, store_ms: int) -> None:
        """Add the entries of one record."""
        before = len(self.hashes)
        self.hashes.extend(hashes)
        count = len(self.hashes) - before
        self.phy_offsets.extend([phy_offset] * count)
        self.store_times.extend([store_ms] * count)
        self.moments.add(store_ms)

    def part(self, begin: int, end: int) -> IndexEntries:
        """Those from number `begin` up to `end`, counted from 0."""
        if begin <= 0 and end >= self.count:
            return self
        return IndexEntries(
            self.hashes[begin:end],
            self.phy_offsets[begin:end],
            self.store_times[begin:end],
            self.moments,
        )


def no_entries() -> IndexEntries:
    """No entries yet."""
    return IndexEntries(array("I"), array("q"), array("q"), set())
