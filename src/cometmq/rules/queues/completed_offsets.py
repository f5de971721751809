"""The offsets of a queue that are finished above the committed one, as runs.

Owns the set; knows nothing of files and brokers, and leaves its place on disk to `offset_journal`.
Invariant: runs are sorted, and neither touch nor overlap.
Java: nothing alike
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    Run = tuple[int, int]

RUNS_MAX = 8192
"""Runs that are kept; the highest are forgotten first, and their messages come again."""


class CompletedOffsets:
    """Offsets that are finished: all below `base`, and runs above it."""

    __slots__ = ("_ends", "_starts", "base")

    def __init__(self, base: int, runs: Iterable[Run] = ()) -> None:
        self.base = base
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in runs:
            self.add(start, end)

    @property
    def runs(self) -> list[Run]:
        """The runs above the base as (first, behind the last), lowest first."""
        return list(zip(self._starts, self._ends, strict=True))

    def __contains__(self, offset: int) -> bool:
        """Whether the offset is finished."""
        if offset < self.base:
            return True
        at = bisect_right(self._starts, offset)
        return at > 0 and offset < self._ends[at - 1]

    def add(self, start: int, end: int) -> None:
        """Note the offsets from `start` to before `end` as finished."""
        start = max(start, self.base)
        if start >= end:
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        # runs neither touch nor overlap: those that do are replaced by their union
        assert low <= high, "runs are sorted"
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]
        del self._starts[RUNS_MAX:]
        del self._ends[RUNS_MAX:]
        assert self._starts[0] >= self.base, "a run begins below the base"

    def advance(self, base: int) -> None:
        """Note that all below `base` is finished; it never goes back."""
        if base <= self.base:
            return
        self.base = base
        gone = bisect_right(self._ends, base)
        del self._starts[:gone]
        del self._ends[:gone]
        if self._starts and self._starts[0] < base:
            self._starts[0] = base
        assert len(self._starts) == len(self._ends), "each run has a start and an end"


def runs_of(offsets: Iterable[int]) -> list[Run]:
    """Sorted offsets as runs."""
    runs: list[Run] = []
    for offset in offsets:
        assert not runs or offset >= runs[-1][1], "offsets are sorted, and none comes twice"
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
