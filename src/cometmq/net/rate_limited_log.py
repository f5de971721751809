"""Limits the rate of log lines that any client can cause.

A client that sends garbage over ever new connections must not fill the disk with our log, nor write
lines of its own into it.
Java: none.
"""

from __future__ import annotations

import asyncio
import logging

WARNINGS_MAX = 20
"""Most lines in one window; the number of suppressed ones is logged in a later window."""

WINDOW_S = 10.0
"""Length of a window, seconds."""


SHOWN_CHARS_MAX = 500
"""Longest text of a client's in a line."""


def shown(found: object) -> object:
    """What a line says of something that a client may have chosen: a text is short and one line."""
    if isinstance(found, int | float):
        return found
    text = str(found)
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


class RateLimitedLog:
    """The lines of one server into one log. Belongs to its loop."""

    __slots__ = ("_log", "_logged", "_suppressed", "_window_start")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = 0
        self._suppressed = 0
        self._window_start = float("-inf")

    def info(self, text: str, *args: object) -> None:
        """Log for information, unless this window has had its share of lines."""
        if self._log.isEnabledFor(logging.INFO):
            self._write(logging.INFO, text, args, exc_info=False)

    def warning(self, text: str, *args: object, exc_info: bool = False) -> None:
        """Log a warning, unless this window has had its share; `exc_info` as in logging."""
        self._write(logging.WARNING, text, args, exc_info=exc_info)

    def _write(self, level: int, text: str, args: tuple[object, ...], *, exc_info: bool) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window_start >= WINDOW_S:
            if self._suppressed:
                self._log.warning("%d lines like these were suppressed", self._suppressed)
            self._window_start = now
            self._logged = 0
            self._suppressed = 0
        if self._logged < WARNINGS_MAX:
            self._logged += 1
            self._log.log(level, text, *map(shown, args), exc_info=exc_info)
        else:
            self._suppressed += 1
