"""The time that messages are stored with, and that their delays and ages are measured by.

It goes with the monotonic clock and is compared with the wall clock once a second, so that a wall
clock that is wrong for a moment leaves no trace. A wall clock that stays ahead is followed after
`BELIEVED_MS`. Behind a wall clock that was set back store times cannot follow, for they never go
back along the log: they go on a tenth slower until both agree. What happens is logged.
Java: none; there a store time is whatever the wall clock says.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import Clock

log = logging.getLogger(__name__)

FOLLOW_S = 1.0
"""Time between two comparisons with the wall clock, seconds."""

GRAIN_MS = 1
"""A difference that two clocks show though they agree, for both are read in whole milliseconds."""

STEP_MS = 1_000
"""A difference above this is a step of the clock: logged, and if ahead not believed at once."""

BELIEVED_MS = 60_000
"""How long a wall clock must stay ahead before store times follow it."""

SLOWER = 10
"""Store times that are ahead lose one part in so many."""


class StoreClock:
    """The clock of one store. Belongs to its loop; `follow` is called every `FOLLOW_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_ms = clock.now_ms() - clock.monotonic_ms()
        """What is added to the monotonic clock; the write path does so by itself."""
        self._compared_ms = clock.monotonic_ms()
        self._ahead_since_ms: int | None = None
        """When the wall clock was first seen ahead, by the monotonic one."""
        self._is_behind = False
        """Whether the wall clock was set back, and that was logged."""

    def now_ms(self) -> int:
        """The store time of a message that is stored now, unless a newer one is in the log."""
        return self._clock.monotonic_ms() + self.offset_ms

    def believed_ms(self) -> int:
        """The wall clock, or the store time while that is less: for ages of what is deleted."""
        return min(self._clock.now_ms(), self.now_ms())

    def not_before(self, store_ms: int) -> None:
        """Go on from the store time of a record that is in the log."""
        self.offset_ms += max(0, store_ms - self.now_ms())
        assert self.now_ms() >= store_ms, "the next message would be older than one in the log"

    def follow(self) -> None:
        """Compare with the wall clock, and come nearer to it."""
        monotonic_ms = self._clock.monotonic_ms()
        passed_ms, self._compared_ms = monotonic_ms - self._compared_ms, monotonic_ms
        assert passed_ms >= 0, "the monotonic clock went back"
        offset_ms = self.offset_ms
        behind_ms = self._clock.now_ms() - (monotonic_ms + offset_ms)
        if behind_ms <= STEP_MS:
            self._ahead_since_ms = None
        if behind_ms > STEP_MS:
            self._follow_ahead(behind_ms, monotonic_ms)
        elif behind_ms > GRAIN_MS:
            self.offset_ms += behind_ms
        elif behind_ms < -GRAIN_MS:
            self._note_set_back(-behind_ms)
            self.offset_ms -= min(-behind_ms, passed_ms // SLOWER)
        assert self.offset_ms + passed_ms >= offset_ms, "store times went back"
        if self._is_behind and behind_ms >= -STEP_MS:
            self._is_behind = False
            log.warning("store times and the clock agree again")

    def _follow_ahead(self, by_ms: int, monotonic_ms: int) -> None:
        if self._ahead_since_ms is None:
            self._ahead_since_ms = monotonic_ms
            log.warning(
                "the clock went %d s ahead; store times and delays do not follow it unless it "
                "stays there for %d s",
                by_ms // 1000,
                BELIEVED_MS // 1000,
            )
        elif monotonic_ms - self._ahead_since_ms >= BELIEVED_MS:
            self._ahead_since_ms = None
            self.offset_ms += by_ms
            log.warning(
                "the clock stayed %d s ahead; store times follow it now, and delayed messages are "
                "due by it",
                by_ms // 1000,
            )

    def _note_set_back(self, by_ms: int) -> None:
        if by_ms > STEP_MS and not self._is_behind:
            self._is_behind = True
            log.warning(
                "the clock is %d s behind the store times; they never go back, so they go on a "
                "tenth slower, and delays take a tenth longer, for %d s",
                by_ms // 1000,
                by_ms * SLOWER // 1000,
            )
