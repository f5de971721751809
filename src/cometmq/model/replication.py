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
