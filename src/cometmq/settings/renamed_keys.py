"""Settings that have another name now, and what becomes of a value under the old one.

An old name counts for one release, with a warning. Whoever renames a setting adds a line here; the
release after the next removes it. Refuses to know where values come from.
Java: none.
"""

from __future__ import annotations

RENAMED = {"parkedPullsMax": "heldPullsMax"}
"""Old names of settings, and the present ones."""


def renaming(old: str) -> str:
    """What is said of a value under an old name."""
    return f"{old} is called {RENAMED[old]} now; release 0.2 drops the old name"
