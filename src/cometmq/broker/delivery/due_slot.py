"""The timers of one slot: found through the log of timers, then delivered one after the other.

The chain of a slot is read backwards, a part at a time, so that a slot with many timers does not
hold the loop; then what is recalled is known, and the others come in the order of their puts.
Bound: 12 bytes a timer of the one slot that is due, and the keys of its recalls.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from cometmq.store.timers.timer_log import KIND_RECALL, KIND_ROLL

if TYPE_CHECKING:
    from cometmq.store.timers.timer_log import TimerLog

_CHAIN_PART = 500
"""Records read in one iteration of the loop."""


class DueSlot:
    """What is left of a slot."""

    def __init__(self, slot_ms: int, last_record: int) -> None:
        self.slot_ms = slot_ms
        self._next_record = last_record
        self._places = array("q")
        self._kinds = array("B")
        self.recalls: list[int] = []
        """Places in the commit log of the recalls that are for this slot, still to be read."""
        self.recalled: set[bytes] = set()
        """The topics and keys of what they take away, see `timer_messages`."""
        self.delivered = 0

    def read_part(self, log: TimerLog) -> bool:
        """Read a part of the chain; False once it is whole. NotInMemory: fetch, then again."""
        for _ in range(_CHAIN_PART):
            found = log.record(self._next_record, cached_only=True)
            if found is None:
                self._next_record = -1
                return False
            if found.kind & KIND_RECALL and not found.kind & KIND_ROLL:
                self.recalls.append(found.phy_offset)
            else:
                self._places.append(found.phy_offset)
                self._kinds.append(found.kind)
            self._next_record = found.before
        return True

    @property
    def is_done(self) -> bool:
        """Whether all timers were delivered."""
        return self.delivered >= len(self._places)

    def next_timer(self) -> tuple[int, bool]:
        """The place of the next message in the commit log, and whether it only moves on."""
        at = len(self._places) - 1 - self.delivered
        return self._places[at], bool(self._kinds[at] & KIND_ROLL)
