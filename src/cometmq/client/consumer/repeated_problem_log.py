"""Problems that every round meets again: each is logged once, until all is well.

Java: nothing alike
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_PROBLEMS_MAX = 100


class ProblemLog:
    """The problems of one group. One loop owns it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._reported: set[str] = set()

    def report(self, problem: str) -> None:
        """Log a problem, unless it was reported since the last `clear`."""
        if problem not in self._reported and len(self._reported) < _PROBLEMS_MAX:
            self._reported.add(problem)
            log.warning("%s (group %s)", problem, self._group)

    def clear(self) -> None:
        """Note that all is well: a problem that comes back is logged again."""
        self._reported.clear()
