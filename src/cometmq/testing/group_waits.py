"""Waits for what a test needs before it goes on: a group that is assigned, or idle; messages.

Each asks the brokers as an admin does, so it works for members in other processes and on Apache's
brokers. The functions named `until_...` are for an event loop, those named `wait_until_...` for
everything else. All raise AssertionError, which says how far it came, when the time is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.errors import BrokerError, GroupNotFound, RemotingError, RouteNotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.model.group_status import QueueLag

    Check = Callable[[AsyncAdmin], Awaitable[str]]
    """Says what is missing; an empty text: nothing."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


class HasNameServer(Protocol):
    """A cluster of this kit, or whatever else knows a name server."""

    @property
    def namesrv(self) -> str:
        """Its address, "host:port"."""
        ...


async def until_assigned(
    cluster: HasNameServer,
    group: str,
    topic: str,
    *,
    members: int | None = None,
    timeout_s: float = 30.0,
) -> None:
    """Wait until each queue of the topic has a member of the group that works on it.

    `members`: and until that many members have queues (default: any number).
    """

    async def missing(admin: AsyncAdmin) -> str:
        rows = await admin.group_lag(group, topic)
        owners = {row.owner for row in rows if row.owner is not None}
        free = [str(row.queue) for row in rows if row.owner is None]
        if free or not rows:
            return f"nobody has {', '.join(free) or topic}"
        if members is not None and len(owners) != members:
            return f"{len(owners)} of {members} members have queues"
        return ""

    await _until(cluster, missing, f"{group} is not assigned", timeout_s)


async def until_idle(
    cluster: HasNameServer, group: str, topic: str | None = None, *, timeout_s: float = 30.0
) -> None:
    """Wait until the group has handled all that its topics, or one of them, hold."""

    async def missing(admin: AsyncAdmin) -> str:
        rows = await admin.group_lag(group, topic)
        busy = [row for row in rows if row.lag != 0 or row.in_flight]
        return ", ".join(map(_progress, busy[:3])) if rows else "no queue is known"

    await _until(cluster, missing, f"{group} is not idle", timeout_s)


async def until_stored(
    cluster: HasNameServer, topic: str, count: int, *, timeout_s: float = 30.0
) -> None:
    """Wait until the topic holds `count` messages or more."""

    async def missing(admin: AsyncAdmin) -> str:
        bounds = (await admin.topic_stats(topic)).values()
        stored = sum(each.max_offset - each.min_offset for each in bounds)
        return "" if stored >= count else f"{stored} of {count}"

    await _until(cluster, missing, f"{topic} does not hold the messages", timeout_s)


def wait_until_assigned(
    cluster: HasNameServer,
    group: str,
    topic: str,
    *,
    members: int | None = None,
    timeout_s: float = 30.0,
) -> None:
    """Do as `until_assigned`, without an event loop."""
    asyncio.run(until_assigned(cluster, group, topic, members=members, timeout_s=timeout_s))


def wait_until_idle(
    cluster: HasNameServer, group: str, topic: str | None = None, *, timeout_s: float = 30.0
) -> None:
    """Do as `until_idle`, without an event loop."""
    asyncio.run(until_idle(cluster, group, topic, timeout_s=timeout_s))


def wait_until_stored(
    cluster: HasNameServer, topic: str, count: int, *, timeout_s: float = 30.0
) -> None:
    """Do as `until_stored`, without an event loop."""
    asyncio.run(until_stored(cluster, topic, count, timeout_s=timeout_s))


def _progress(row: QueueLag) -> str:
    behind = "an unknown number" if row.lag is None else row.lag
    return f"{row.queue}: {behind} behind, {row.in_flight} in flight"


async def _until(cluster: HasNameServer, check: Check, problem: str, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + timeout_s, _FIRST_PAUSE_S
    async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
        while True:
            try:
                missing = await check(admin)
            except (GroupNotFound, RouteNotFound, BrokerError, RemotingError) as error:
                missing = str(error)
            if not missing:
                return
            assert loop.time() < deadline, f"{problem} after {timeout_s:g} s: {missing}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
