"""What a master knows of one slave and decides about it. Knows no socket, file or clock.

Owns where the next transfer begins, how far the slave has come, and when something is due. The
first report says from where the slave wants bytes; an empty slave (0) gets them from the start of
the master's last file. Invariant: acknowledged <= next offset to send <= end of the log.
Java: DefaultHAConnection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from cometmq.errors import ProtocolError

GATHERED_BYTES_MAX = 64 * 1024
"""A slave that lacks as much after a transfer gets the next one at once."""
_NEVER = -1
_LAG_SAMPLES = 3_600
"""Ends of the log that are remembered, one a look: no longer lag is measured."""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """How a master feeds its slaves; seconds and bytes."""

    heartbeat_s: float
    silence_max_s: float
    transfer_bytes_max: int
    bytes_per_second_max: int | None = None
    gather_s: float = 0.0
    """Time from one transfer to the next, in which bytes are gathered; 0: all leave at once."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which bytes of the log a master can send, and how large its files are."""

    first: int
    end: int
    file_bytes: int


class SlaveFeed:
    """One slave, as its master sees it."""

    def __init__(self, limits: FeedLimits, now_s: float) -> None:
        self._limits = limits
        self._heard_s = now_s
        self._sent_s = now_s
        self._transfer_s = now_s - limits.gather_s
        self._second = now_s
        self._sent_in_second = 0
        self.next_offset = _NEVER
        """Where the next transfer begins; -1 before the first report."""
        self.acknowledged = _NEVER
        """Where the slave's log ends, as it says; -1 before the first report."""
        self.asked_for = _NEVER
        """The slave's first report."""
        self.first_offset = _NEVER
        """Where the first transfer began: bytes before it may be missing at the slave."""
        self._ends: deque[tuple[int, float]] = deque(maxlen=_LAG_SAMPLES)
        """Where the log ended and when, of all that the slave has not reached."""
        self.sent_bytes = 0
        """Bytes of the log sent so far."""
        self.bytes_per_second = 0
        """Bytes sent in the last whole second."""

    @property
    def has_begun(self) -> bool:
        """Whether the slave has said from where it wants bytes."""
        return self.next_offset != _NEVER

    def reported(self, last: int, now_s: float) -> None:
        """Take the last of the slave's reports that came at once, after `begin`.

        ProtocolError where it cannot be true.
        """
        self._heard_s = now_s
        if last < self.acknowledged:
            raise ProtocolError(
                f"it reported {last} after {self.acknowledged}: a slave's log does not shrink"
            )
        if last > self.next_offset:
            raise ProtocolError(f"it reported {last}, and was sent bytes up to {self.next_offset}")
        self.acknowledged = last

    def begin(self, wanted: int, log: LogRange) -> None:
        """Take the slave's first report; ProtocolError where the log has not what it wants."""
        if wanted > log.end:
            raise ProtocolError(
                f"its log ends at {wanted} and this one at {log.end}: it has messages that this "
                "broker has not; rebuild it with: cometmq store rebuild-slave"
            )
        if wanted and wanted < log.first:
            raise ProtocolError(
                f"it wants byte {wanted} of the log, and the first one left is {log.first}; "
                "rebuild it with: cometmq store rebuild-slave"
            )
        self.asked_for = wanted
        start = log.end - log.end % log.file_bytes
        self.next_offset = self.first_offset = wanted or max(start, log.first)

    def length(self, log_end: int, now_s: float) -> int:
        """How many bytes may be sent now; 0: none."""
        if not self.has_begun:
            return 0
        assert self.next_offset <= log_end, "more was sent than there is"
        length = min(log_end - self.next_offset, self._limits.transfer_bytes_max)
        allowed = self._limits.bytes_per_second_max
        if allowed is None:
            return length
        self._turn(now_s)
        return min(length, max(0, allowed - self._sent_in_second))

    def hold_s(self, log_end: int, now_s: float) -> float:
        """How long bytes are still gathered before the next transfer; 0: it leaves now."""
        gather_s = self._limits.gather_s
        if not gather_s or log_end - self.next_offset >= GATHERED_BYTES_MAX:
            return 0.0
        return max(0.0, self._transfer_s + gather_s - now_s)

    def pause_s(self, now_s: float) -> float:
        """How long a feed waits that may send no more in this second."""
        return max(0.0, self._second + 1.0 - now_s)

    def sent(self, size: int, now_s: float) -> None:
        """So many bytes were sent; none: a heartbeat."""
        if now_s - self._second >= 1.0:
            self._turn(now_s)
        self._sent_s = now_s
        if size:
            self._transfer_s = now_s
        self.next_offset += size
        self.sent_bytes += size
        self._sent_in_second += size

    def is_heartbeat_due(self, now_s: float) -> bool:
        """Whether the slave must hear something, lest it takes this master for dead."""
        return self.has_begun and now_s - self._sent_s >= self._limits.heartbeat_s

    def is_silent(self, now_s: float) -> bool:
        """Whether the slave has said nothing for so long that its connection is closed."""
        return now_s - self._heard_s > self._limits.silence_max_s

    def note_end(self, log_end: int, now_s: float) -> None:
        """Remember where the log ends now: `lag_s` is measured by it."""
        self._drop_reached()
        if log_end > self.acknowledged and (not self._ends or self._ends[-1][0] < log_end):
            self._ends.append((log_end, now_s))

    def lag_s(self, now_s: float) -> float:
        """For how long the slave has lacked something that it lacks now, seconds; 0: nothing."""
        self._drop_reached()
        return now_s - self._ends[0][1] if self._ends else 0.0

    def _drop_reached(self) -> None:
        while self._ends and self._ends[0][0] <= self.acknowledged:
            self._ends.popleft()

    def _turn(self, now_s: float) -> None:
        if now_s - self._second >= 1.0:
            is_next = now_s - self._second < 2.0
            self.bytes_per_second = self._sent_in_second if is_next else 0
            self._second, self._sent_in_second = now_s, 0
