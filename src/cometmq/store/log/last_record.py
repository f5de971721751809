"""The newest record of a log: the newest whole one for recovery, the newest visible for readers."""

from __future__ import annotations

from typing import NamedTuple


class LastRecord(NamedTuple):
    """The newest good record: where, how long, when stored."""

    phy_offset: int
    size: int
    store_ms: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.phy_offset + self.size


NO_RECORD = LastRecord(-1, 0, 0)
