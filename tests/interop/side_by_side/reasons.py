"""The reviewed list of differences from Apache's broker, each with its reason.

A line is `exchange | path | Apache's value -> ours | reason`, with * for anything in the first
three. A difference without a line is a failure, and so is a line that nothing needed: what comes
and goes with the clock is taken out of both answers before they are laid side by side.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "reasons"


class Difference(NamedTuple):
    """One path of one answer that the two sides fill differently; "-" where there is nothing."""

    name: str
    path: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.name} | {self.path} | {self.theirs} -> {self.ours}"


class Reason(NamedTuple):
    line: int
    pattern: re.Pattern[str]
    text: str


class Reasons:
    """The lines of one file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reasons: list[Reason] = []
        self._used: set[int] = set()
        for number, line in enumerate((FOLDER / name).read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                *what, text = line.split(" | ")
                assert len(what) == 3, f"{name}:{number}: give exchange, path, values, reason"
                assert len(text) > 9, f"{name}:{number}: give a reason"
                shape = ".*".join(re.escape(part) for part in " | ".join(what).split("*"))
                self._reasons.append(Reason(number, re.compile(shape, re.DOTALL), text.strip()))

    def of(self, difference: Difference) -> str | None:
        """Why it is so; None for what nobody explained."""
        for reason in self._reasons:
            if reason.pattern.fullmatch(str(difference)):
                self._used.add(reason.line)
                return reason.text
        return None

    @property
    def unused(self) -> list[str]:
        """Lines that explained nothing so far."""
        return [
            f"reasons/{self._name}:{each.line}: no difference needs this any more: {each.text}"
            for each in self._reasons
            if each.line not in self._used
        ]
