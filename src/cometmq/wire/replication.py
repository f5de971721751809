"""The wire of replication: what a master and a slave say at the master's haListenPort.

No command and no header, only numbers and bytes of the log, big endian:

    slave -> master   report      i64 where the slave's log ends; the first one asks for bytes
    master -> slave   transfer    i64 place in the log, i32 size, then so many bytes of the log
                      heartbeat   a transfer of no bytes; its place is where the next ones begin

Java: DefaultHAClient, DefaultHAConnection.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from cometmq.errors import ProtocolError

REPORT = Struct(">q")
TRANSFER_HEAD = Struct(">qi")
TRANSFER_BYTES_MAX = 4 * 1024 * 1024 - TRANSFER_HEAD.size
"""Apache's slave has a buffer of 4 MiB: a longer transfer would never fit."""


class Transfer(NamedTuple):
    """Bytes of the log and where they begin; none: a heartbeat."""

    phy_offset: int
    data: bytes


def encode_transfer_head(phy_offset: int, size: int) -> bytes:
    """What stands before so many bytes of the log; with size 0 it is a heartbeat."""
    assert 0 <= size <= TRANSFER_BYTES_MAX
    return TRANSFER_HEAD.pack(phy_offset, size)


def encode_report(log_end: int) -> bytes:
    """A slave's report of where its log ends."""
    return REPORT.pack(log_end)


class TransferDecoder:
    """What a slave reads: transfers, however their bytes are cut up."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Transfer]:
        """The transfers that these bytes complete.

        ProtocolError, and nothing of these bytes is taken, where no master sends such numbers.
        """
        unread = self._rest + data if self._rest else data
        found: list[Transfer] = []
        index = 0
        while len(unread) - index >= TRANSFER_HEAD.size:
            phy_offset, size = TRANSFER_HEAD.unpack_from(unread, index)
            if phy_offset < 0 or not 0 <= size <= TRANSFER_BYTES_MAX:
                raise ProtocolError(
                    f"a transfer of {size} bytes at {phy_offset}: this is no master's haListenPort"
                )
            begin = index + TRANSFER_HEAD.size
            if begin + size > len(unread):
                break
            found.append(Transfer(phy_offset, unread[begin : begin + size]))
            index = begin + size
        self._rest = unread[index:]
        return found


class ReportDecoder:
    """What a master reads: reports, of which the last counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> tuple[int, int] | None:
        """The first and the last report that these bytes complete; None where there is none.

        ProtocolError where one is negative: no log ends there.
        """
        unread = self._rest + data if self._rest else data
        whole = len(unread) - len(unread) % REPORT.size
        self._rest = unread[whole:]
        if not whole:
            return None
        reports = [each for (each,) in REPORT.iter_unpack(unread[:whole])]
        if min(reports) < 0:
            raise ProtocolError(f"a report of {min(reports)}: no log ends before its first byte")
        return reports[0], reports[-1]
