"""What a table shows of the copies of each broker's log: a line for each slave, from both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, ProtocolError, RemotingError

if TYPE_CHECKING:
    from cometmq.client.admin.async_admin import AsyncAdmin

REPLICATION_HEAD = (
    "broker", "id", "address", "epoch", "copy", "log end", "lag bytes", "lag s", "state",
)  # fmt: skip
_CELLS = ("broker", "broker_id", "addr", "epoch", "copy", "log_end", "lag_bytes", "lag_s", "state")


async def replication_rows(admin: AsyncAdmin) -> list[dict[str, object]]:
    """Of each master its slaves, of each slave its master, in the order of names and ids."""
    rows: list[dict[str, object]] = []
    for name, data in sorted((await admin.clusters()).broker_addr_table.items()):
        for number, addr in sorted(data.broker_addrs.items()):
            epoch = await _epoch(admin, addr)
            place = {"broker": name, "broker_id": number, "addr": addr, "epoch": epoch}
            rows += await _rows(admin, place)
    return rows


async def _epoch(admin: AsyncAdmin, addr: str) -> int | None:
    """The newest epoch that a broker knows; None where it knows none, as Apache's."""
    try:
        return (await admin.epochs(addr)).epochs[-1].number
    except (RemotingError, BrokerError, ProtocolError):
        return None


async def _rows(admin: AsyncAdmin, place: dict[str, object]) -> list[dict[str, object]]:
    try:
        status = await admin.replication_status(str(place["addr"]))
    except (RemotingError, BrokerError, ProtocolError) as error:
        return [{**place, "state": str(error)}]
    if (master := status.master) is not None:
        facts = {"copy": f"of {master.addr or 'nobody'}", "log_end": master.log_end}
        return [{**place, **facts, "state": master.problem or "copying"}]
    if not status.slaves:
        return [{**place, "log_end": status.log_end, "state": "no slave"}]
    return [
        {
            **place,
            "copy": f"at {slave.addr}",
            "log_end": slave.acknowledged,
            "lag_bytes": slave.lag_bytes,
            "lag_s": slave.lag_ms / 1000,
            "state": "in sync" if slave.is_in_sync else "behind",
        }
        for slave in status.slaves
    ]


def replication_row(row: dict[str, object]) -> list[object]:
    """The cells of one line."""
    return ["-" if row.get(name) is None else row[name] for name in _CELLS]
