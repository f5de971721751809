"""The most frequent of many keys, counted in bounded memory (space-saving, Metwally et al. 2005).

A key that is more frequent than one in `most` is always among those kept. Old counts fade: they are
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
        self._total = 0.0

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
                counts[key] = counts.pop(rarest) + 1
            self._total += 1
        if self._total > FADE:
            self._total /= 2
            self._counts = {key: count / 2 for key, count in counts.items()}

    def shares(self, most: int) -> dict[str, float]:
        """The keys that were counted most, each with its share of all, the first one the most."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return {key: round(count / self._total, 3) for key, count in ordered[:most]}
