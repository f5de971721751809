"""The most frequent of many keys, counted in bounded memory (space-saving, Metwally et al. 2005).

A key that is more frequent than one in `most` is always among those kept. What a key may have been
counted too much is known and taken away: rare keys do not look frequent. Old counts fade: they are
halved once as many as `FADE` were counted. Pure.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FADE = 4_096


class FrequentKeys:
    """Counts keys; keeps `most` of them."""

    def __init__(self, most: int = 32) -> None:
        assert most > 0, "without a place no key is kept"
        self._most = most
        self._counts: dict[str, float] = {}
        self._too_much: dict[str, float] = {}
        """By how much the count of a key may be too high: what it took over from another."""
        self.total = 0.0
        """Keys that were counted, those that have faded away left out."""

    def add(self, keys: Iterable[str]) -> None:
        """Count each of these keys once."""
        counts = self._counts
        for key in keys:
            if key in counts:
                counts[key] += 1
            elif len(counts) < self._most:
                counts[key] = 1
            else:
                rarest = min(counts, key=counts.__getitem__)
                self._too_much.pop(rarest, None)
                self._too_much[key] = taken_over = counts.pop(rarest)
                counts[key] = taken_over + 1
            self.total += 1
        if self.total > FADE:
            self.total /= 2
            self._counts = {key: count / 2 for key, count in counts.items()}
            self._too_much = {key: count / 2 for key, count in self._too_much.items()}

    def shares(self, most: int) -> dict[str, float]:
        """The keys with the largest shares of all, at least, the first one the largest."""
        sure = {key: count - self._too_much.get(key, 0.0) for key, count in self._counts.items()}
        ordered = sorted(sure.items(), key=lambda item: (-item[1], item[0]))
        return {key: round(count / self.total, 3) for key, count in ordered[:most]}
