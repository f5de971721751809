"""Delay levels: the table ``messageDelayLevel`` and the delays in it.

Parses the text (``1s 5s 10s``: a whole number and one of s m h d; levels count from 1), clamps
levels above the table, and computes when a message is due. Time is an argument.
Invariant: every delay is longer than zero.
Java: ScheduleMessageService.parseDelayLevel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVELS_MAX = 10_000


class DelayLevels:
    """How long each delay level lasts; level 1 is the first entry. Immutable."""

    __slots__ = ("_delays_ms",)

    def __init__(self, delays_ms: Iterable[int]) -> None:
        self._delays_ms = tuple(delays_ms)
        assert all(delay > 0 for delay in self._delays_ms), "a delay is longer than zero"

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Read the text of ``messageDelayLevel``; raises SettingsError naming the bad entry."""
        words = text.split()
        if not words or len(words) > _LEVELS_MAX:
            raise SettingsError(
                f"messageDelayLevel has {len(words)} levels; give 1 to {_LEVELS_MAX}, as in '1s 5s'"
            )
        return cls(_delay_ms(word) for word in words)

    @property
    def max_level(self) -> int:
        """The highest level; higher ones count as this one."""
        return len(self._delays_ms)

    def clamp(self, level: int) -> int:
        """The level, at most the highest; 0 and below stay as they are."""
        return min(level, len(self._delays_ms))

    def delay_ms(self, level: int) -> int:
        """The delay of this level; levels above the table have that of the highest."""
        assert level > 0, "level 0 is no delay"
        return self._delays_ms[min(level, len(self._delays_ms)) - 1]

    def nearest(self, delay_ms: int) -> int:
        """The shortest level of at least this delay; if there is none, the longest."""
        delays = self._delays_ms
        enough = [delay for delay in delays if delay >= delay_ms]
        return delays.index(min(enough) if enough else max(delays)) + 1

    def due_ms(self, level: int, store_ms: int) -> int:
        """When a message stored at ``store_ms`` is due."""
        return store_ms + self.delay_ms(level)


def _delay_ms(word: str) -> int:
    number, unit = word[:-1], word[-1]
    if unit not in _UNIT_MS or not (number.isascii() and number.isdigit()) or int(number) == 0:
        raise SettingsError(
            f"messageDelayLevel: {word!r} is not a level; write a whole number and one of s m h d, "
            "as in '30s' or '2h'"
        )
    return int(number) * _UNIT_MS[unit]
