"""Records without a checksum of their own among records that have one: theirs may be damaged.

Where the checkpoint says that all records were written with a checksum, one without it is damaged.
Elsewhere it is judged by the checksum of its body alone, as those of brokers that write no other:
nothing shows whether another broker wrote it or damage took its checksum, and perhaps more. So it
is served, and `cometmq store verify` names it. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire.records.log_record import has_checksum

if TYPE_CHECKING:
    from cometmq.wire.records.log_record import StoredRecord

_RUN_MAX = 8
"""More of them side by side were written by another broker."""


class UnchecksummedRecordFinder:
    """Looks at the records of one log in their order."""

    def __init__(self) -> None:
        self.found: list[str] = []
        """Those found, in sentences."""
        self._run: list[str] | None = None

    def see(self, record: StoredRecord) -> None:
        """Look at the next record."""
        if has_checksum(record.properties):
            self.found += self._run or ()
            self._run = []
        elif self._run is not None:
            self._run.append(
                f"the record at byte {record.phy_offset} ({record.topic} queue {record.queue_id} "
                f"offset {record.queue_offset}) has no checksum of its own, as those around it "
                "have: its body is whole, its properties may be damaged"
            )
            if len(self._run) > _RUN_MAX:
                self._run = None
