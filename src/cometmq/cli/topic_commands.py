"""The commands about topics: create, list, status.

Asks name servers and brokers through the client's admin; refuses to know the wire. Prints plain
columns, so the output can be cut and counted. Java: mqadmin updateTopic, topicList, topicStatus.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cometmq.client.admin.async_admin import AsyncAdmin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.model.admin_stats import TopicOffset
    from cometmq.model.queue import MessageQueue

_PERMS = {"r": 4, "rw": 6}
_QUEUES = 8
_DEFAULT_NAMESRV = "127.0.0.1:9876"

_namesrv = click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default=_DEFAULT_NAMESRV,
    show_default=True,
    metavar="HOST:PORT;...",
    help="Name servers; NAMESRV_ADDR is taken as well.",
)


@click.group()
def topic() -> None:
    """Create, list and look at topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--queues", type=click.IntRange(1, 65_536), help=f"On each broker.  [default: {_QUEUES}]"
)
@click.option("--perm", type=click.Choice(list(_PERMS)), default="rw", show_default=True)
@click.option(
    "--order",
    type=click.Choice(["global", "keys"]),
    help="keys: each sharding key in order; global: all messages, so one queue on one broker.",
)
@click.option(
    "--group",
    "groups",
    metavar="GROUP",
    multiple=True,
    help="With --order global: a consumer group to make for it; may be repeated.",
)
@_namesrv
def create(
    name: str,
    queues: int | None,
    perm: str,
    order: str | None,
    groups: tuple[str, ...],
    namesrv: str,
) -> None:
    """Create the topic NAME, or change it, on all brokers.

    With --order global it lies on one broker, has one queue, and refuses to get more.
    """
    if order == "global" and queues not in (None, 1):
        raise click.UsageError("a topic in global order has one queue; leave --queues out")
    if groups and order != "global":
        raise click.UsageError("--group goes with --order global")

    async def work(admin: AsyncAdmin) -> str:
        if order == "global":
            broker = await admin.create_ordered_topic(name, perm=_PERMS[perm], groups=groups)
            return f"1 queue on {broker}, in global order"
        await admin.create_topic(
            name, queues or _QUEUES, perm=_PERMS[perm], order=order is not None
        )
        return f"{len(await admin.queues(name))} queues"

    click.echo(f"{name}: {_with_admin(namesrv, work)}")


@topic.command("list")
@click.option("--system", is_flag=True, help="Also those that brokers keep for themselves.")
@_namesrv
def list_topics(system: bool, namesrv: str) -> None:
    """List the topics, one a line."""
    for name in _with_admin(namesrv, lambda admin: admin.topics(with_system=system)):
        click.echo(name)


@topic.command()
@click.argument("name")
@_namesrv
def status(name: str, namesrv: str) -> None:
    """Show each queue of the topic NAME: its offsets, how many messages, the time of the last."""
    found = _with_admin(namesrv, lambda admin: admin.topic_stats(name))
    rows = [_row(queue, offset) for queue, offset in sorted(found.items())]
    total = sum(offset.max_offset - offset.min_offset for offset in found.values())
    rows.append(("all", "", "", "", str(total), ""))
    _print_columns([("broker", "queue", "first", "next", "messages", "last"), *rows])


def _row(queue: MessageQueue, offset: TopicOffset) -> tuple[str, ...]:
    first, after = offset.min_offset, offset.max_offset
    numbers = (queue.queue_id, first, after, after - first)
    return queue.broker_name, *map(str, numbers), _time(offset.last_update_timestamp)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else ""


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _with_admin(namesrv: str, work: Callable[[AsyncAdmin], Awaitable[Any]]) -> Any:
    async def ask() -> Any:
        async with AsyncAdmin(namesrv=namesrv) as admin:
            return await work(admin)

    return asyncio.run(ask())
