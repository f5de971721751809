"""Warnings that strangers can cause at will, kept to so many in a while.

Whoever sends garbage over ever new connections must not fill the disk with our log. Refuses to know
what is complained about. Java: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

TOLD_MAX = 20
"""Warnings in one window; what comes beyond is counted and told with the next that is not."""

WINDOW_S = 10.0
"""How long a window is, seconds."""


class Complaints:
    """The warnings of one server into one log. Belongs to its loop."""

    __slots__ = ("_left_out", "_log", "_since", "_told")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told = self._left_out = 0
        self._since = float("-inf")

    def warn(self, text: str, *args: object) -> None:
        """Log a warning, unless there were too many of late."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= WINDOW_S:
            if self._left_out:
                self._log.warning("%d warnings like these were left out", self._left_out)
            self._since, self._told, self._left_out = now, 0, 0
        if self._told < TOLD_MAX:
            self._told += 1
            self._log.warning(text, *args)
        else:
            self._left_out += 1
