"""What tables show of each broker of a cluster; one that does not answer is shown as that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, ProtocolError, RemotingError

if TYPE_CHECKING:
    from cometmq.client.admin.async_admin import AsyncAdmin

BROKER_HEAD = (
    "cluster", "broker", "id", "address", "version", "in/s", "out/s", "in today", "out today",
    "disk", "state",
)  # fmt: skip


async def broker_rows(admin: AsyncAdmin) -> list[dict[str, object]]:
    """Each broker that a name server lists, in order, masters and slaves."""
    known = (await admin.clusters()).broker_addr_table
    places = [
        (data.cluster, name, number, addr)
        for name, data in sorted(known.items())
        for number, addr in sorted(data.broker_addrs.items())
    ]
    return list(await asyncio.gather(*(_row(admin, *place) for place in places)))


async def _row(
    admin: AsyncAdmin, cluster: str, name: str, number: int, addr: str
) -> dict[str, object]:
    row: dict[str, object] = {"cluster": cluster, "broker": name, "broker_id": number, "addr": addr}
    try:
        found = await admin.broker_status(addr)
    except (RemotingError, BrokerError, ProtocolError) as error:
        return {**row, "problem": str(error)}
    return {
        **row,
        "version": found.get("brokerVersionDesc", ""),
        "in_per_second": _first(found.get("putTps", "")),
        "out_per_second": _first(found.get("getTransferredTps", "")),
        "in_today": _since(found, "msgPutTotal"),
        "out_today": _since(found, "msgGetTotal"),
        "disk_ratio": _number(found.get("commitLogDiskRatio", "")),
        "problem": None,
    }


def broker_row(row: dict[str, object]) -> list[object]:
    """The cells of one broker."""
    cells = [row.get(name, "-") for name in _CELLS]
    for at in (5, 6):
        cells[at] = f"{cells[at]:.1f}" if isinstance(cells[at], float) else cells[at]
    disk = row.get("disk_ratio")
    return [*cells, f"{disk:.0%}" if isinstance(disk, float) else "-", row["problem"] or "answers"]


_CELLS = (
    "cluster", "broker", "broker_id", "addr", "version", "in_per_second", "out_per_second",
    "in_today", "out_today",
)  # fmt: skip


def _first(rates: str) -> float:
    """The first of several rates: of the shortest time."""
    return _number(rates.split(" ")[0])


def _since(found: dict[str, str], name: str) -> int:
    """What was counted since midnight."""
    return int(_number(found.get(f"{name}TodayNow", ""))) - int(
        _number(found.get(f"{name}TodayMorning", ""))
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
