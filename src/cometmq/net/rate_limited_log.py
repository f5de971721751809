"""Limits the rate of warnings that any client can cause.

A client that sends garbage over ever new connections must not fill the disk with our log.
Java: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

WARNINGS_MAX = 20
"""Most warnings in one window; the number of suppressed ones is logged in the next window."""

WINDOW_S = 10.0
"""Length of a window, seconds."""


class RateLimitedLog:
    """The warnings of one server into one log. Belongs to its loop."""

    __slots__ = ("_log", "_logged", "_suppressed", "_window_start")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = 0
        self._suppressed = 0
        self._window_start = float("-inf")

    def warning(self, text: str, *args: object, exc_info: bool = False) -> None:
        """Log a warning, unless this window has had its share; `exc_info` as in logging."""
        now = asyncio.get_running_loop().time()
        if now - self._window_start >= WINDOW_S:
            if self._suppressed:
                self._log.warning("%d warnings like these were suppressed", self._suppressed)
            self._window_start = now
            self._logged = 0
            self._suppressed = 0
        if self._logged < WARNINGS_MAX:
            self._logged += 1
            self._log.warning(text, *args, exc_info=exc_info)
        else:
            self._suppressed += 1
