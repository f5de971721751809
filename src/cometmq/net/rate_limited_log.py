"""Warnings that strangers can cause at will, limited to so many in a window of time.

Whoever sends garbage over ever new connections must not fill the disk with our log. Refuses to know
what the warnings are about. Java: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

WARNINGS_MAX = 20
"""Warnings in one window; those beyond are counted, and the next window reports how many."""

WINDOW_S = 10.0
"""How long a window is, seconds."""


class RateLimitedLog:
    """The warnings of one server into one log. Belongs to its loop."""

    __slots__ = ("_log", "_logged", "_since", "_suppressed")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = self._suppressed = 0
        self._since = float("-inf")

    def warning(self, text: str, *args: object) -> None:
        """Log a warning, unless there were too many of late."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= WINDOW_S:
            if self._suppressed:
                self._log.warning("%d warnings like these were left out", self._suppressed)
            self._since, self._logged, self._suppressed = now, 0, 0
        if self._logged < WARNINGS_MAX:
            self._logged += 1
            self._log.warning(text, *args)
        else:
            self._suppressed += 1
