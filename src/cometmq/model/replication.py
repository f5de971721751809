"""How far the copies of a broker's log are: what masters and slaves say of each other.

Java: HARuntimeInfo.
"""

from __future__ import annotations

from typing import NamedTuple


class SlaveStatus(NamedTuple):
    """One connected slave, as its master sees it. Bytes of the log, milliseconds."""

    addr: str
    acknowledged: int
    next_offset: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: int
    is_in_sync: bool


class Epoch(NamedTuple):
    """The time in which one broker was the master."""

    number: int
    start: int
    """The byte of the log with which it began."""
    id: str
    """Made anew with each promotion: two of one number differ by it."""
    former_broker_id: int
    """The brokerId that the promoted broker had before; the former master takes it."""


FIRST_EPOCH = Epoch(1, 0, "", 0)
"""The epoch of a master that was never promoted."""


class EpochStatus(NamedTuple):
    """What a broker knows of epochs: the answer to 1007."""

    broker_id: int
    epochs: tuple[Epoch, ...]
    promised: int
    """It follows no master of a lower epoch."""
    log_end: int

    @property
    def reached(self) -> tuple[Epoch, ...]:
        """The epochs that the log has come to; a slave knows others before it has copied them."""
        return tuple(each for each in self.epochs if each.start <= self.log_end)

    @property
    def is_master(self) -> bool:
        """Whether it takes writes."""
        return self.broker_id == 0


class Promotion(NamedTuple):
    """What came of a promotion."""

    addr: str
    """The master now."""
    epoch: int
    start: int
    """The byte of the log with which its epoch began."""
    silent: tuple[str, ...]
    """Other brokers of the name that did not answer: they may have more of the log."""


class MasterStatus(NamedTuple):
    """The master of a slave, as the slave sees it."""

    addr: str
    log_end: int
    problem: str
    """Why nothing is copied now; empty while it is."""


class ReplicationStatus(NamedTuple):
    """The answer to 907: of a master its slaves, of a slave its master."""

    log_end: int
    slaves: tuple[SlaveStatus, ...] = ()
    master: MasterStatus | None = None
