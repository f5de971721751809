"""The known name that is nearest to one that nobody knows, for errors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?" for the nearest name, "" where none is near."""
    names = list(known)
    found = get_close_matches(name, names, 1) or [
        each for each in sorted(names) if each.lower() == name.lower()
    ]
    return f"; did you mean {found[0]}?" if found else ""
