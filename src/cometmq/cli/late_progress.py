"""Progress on stderr of what takes longer than two seconds; nothing of what is done before."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from cometmq.cli.progress_bars import ProgressBars

if TYPE_CHECKING:
    from collections.abc import Callable

_LATE_S = 2.0


class LateProgress:
    """Counts steps, and begins to draw once two seconds have passed."""

    def __init__(self, name: str, total: int, *, time: Callable[[], float] | None = None) -> None:
        """`time()` gives seconds; by default those of the running loop."""
        self._name = name
        self._total = total
        self._done = 0
        self._time = time or asyncio.get_running_loop().time
        self._begun = self._time()
        self._bars: ProgressBars | None = None
        self._report: Callable[[int], None] | None = None

    def __enter__(self) -> LateProgress:
        """Begin to count the time."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End the drawing, if it has begun."""
        if self._bars is not None:
            self._bars.__exit__(*exc)

    def step(self, count: int = 1) -> None:
        """One more is done, or so many."""
        self._done += count
        if self._report is None:
            if self._time() - self._begun < _LATE_S:
                return
            self._bars = ProgressBars(sys.stderr).__enter__()
            self._report = self._bars.step(self._name, self._total)
        self._report(self._done)
