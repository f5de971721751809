"""What a slave decides about what its master sends. Knows no socket and no clock.

A slave asks for bytes from a little before its own end on: what it has is compared with what the
master sends, and only then the log goes on. So a slave whose history is another one never mixes
two, whoever its master is. Invariants: transfers follow one another; nothing is appended before all
that overlaps was found equal. Java: DefaultHAClient, which compares nothing but offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.wire.replication import Transfer

COMPARED_BYTES = 64 * 1024
"""How much of the end of its log a slave compares, at most; one file's bytes only."""
_HEARTBEATS_SHORT = 2
"""So many heartbeats before the slave's end, and the master has no more than that."""


class HistoryDiffers(StoreError):
    """A slave's log holds other bytes than its master's: it must be rebuilt."""


def compared_from(log_first: int, log_end: int, file_bytes: int) -> int:
    """From where on a slave compares its log: never 0, which would mean that it is empty."""
    if not log_end:
        return 0
    file_start = (log_end - 1) // file_bytes * file_bytes
    return max(log_first, file_start, log_end - COMPARED_BYTES, 1)


class LogFollower:
    """One connection to a master, as the slave's log sees it."""

    def __init__(self, own_end: bytes, log_end: int, append: Callable[[int, bytes], int]) -> None:
        """`own_end`: the last bytes of the log, which ends at `log_end`.

        `append` takes bytes at an offset, as `MessageStore.append_raw`.
        """
        self._own_end = own_end
        self._log_end = log_end
        self._append = append
        self._short_heartbeats = 0
        self.next_offset = log_end - len(own_end)
        """Where the next transfer must begin; before the first of an empty log it is 0."""
        self.received_bytes = 0
        """Bytes of the log that were new."""
        self.master_end = -1
        """Where the master's log ended at least, by its last transfer; -1: not known."""

    @property
    def is_comparing(self) -> bool:
        """Whether the master has not yet sent all that this log has."""
        return self.next_offset < self._log_end

    def take(self, transfers: Iterable[Transfer]) -> int:
        """Compare or append what came; returns how many new bytes these were.

        HistoryDiffers: the log holds other bytes. ProtocolError: not what was to come.
        StoreCorrupt, StoreError, OSError: as `append_raw`. Nothing that came after the problem was
        taken.
        """
        at, parts, count = -1, list[bytes](), 0
        for phy_offset, data in transfers:
            self._check_place(phy_offset, is_first=not parts)
            self.master_end = phy_offset + len(data)
            if not data:
                self._heartbeat(phy_offset)
                continue
            self._short_heartbeats = 0
            new = self._compare(phy_offset, data)
            self.next_offset = phy_offset + len(data)
            if new:
                if not parts:
                    at = self.next_offset - len(new)
                parts.append(new)
                count += len(new)
        if parts:
            self._log_end = self._append(at, b"".join(parts))
            assert self._log_end == self.next_offset
            self.received_bytes += count
        return count

    def _check_place(self, phy_offset: int, *, is_first: bool) -> None:
        if not self._log_end and not self.next_offset and is_first:
            self.next_offset = phy_offset  # an empty log begins where the master says
        if phy_offset != self.next_offset:
            raise ProtocolError(
                f"the master sent bytes at {phy_offset} of the log where {self.next_offset} is next"
            )

    def _heartbeat(self, phy_offset: int) -> None:
        if phy_offset >= self._log_end:
            return
        self._short_heartbeats += 1
        if self._short_heartbeats >= _HEARTBEATS_SHORT:
            raise HistoryDiffers(
                f"the master's log ends at {phy_offset} and this one at {self._log_end}: "
                "this broker has messages that its master has not"
            )

    def _compare(self, phy_offset: int, data: bytes) -> bytes:
        """The part of these bytes that the log does not have; the rest is the same there."""
        overlap = min(self._log_end - phy_offset, len(data))
        if overlap <= 0:
            return data
        index = phy_offset - (self._log_end - len(self._own_end))
        own = self._own_end[index : index + overlap]
        if own != data[:overlap]:
            differs = next(i for i, (a, b) in enumerate(zip(own, data, strict=False)) if a != b)
            begin = self._log_end - len(self._own_end)
            where = "at byte" if phy_offset + differs > begin else "at or before byte"
            raise HistoryDiffers(f"this log and the master's differ {where} {phy_offset + differs}")
        return data[overlap:]
