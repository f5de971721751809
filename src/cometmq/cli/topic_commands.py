"""The commands about topics: create, alter, list, status.

Asks name servers and brokers through the client's admin; refuses to know the wire. Prints plain
columns, so the output can be cut and counted. Java: mqadmin updateTopic, topicList, topicStatus.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.printed_columns import print_columns
from cometmq.cli.shared_options import namesrv_option
from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.model.topic import PERMS, QUEUES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.model.admin_stats import TopicOffset
    from cometmq.model.queue import MessageQueue

_QUEUES = 8
_COUNT = click.IntRange(1, QUEUES_MAX)
_read_queues = click.option("--read-queues", type=_COUNT, help="Instead of --queues, for readers.")
_write_queues = click.option("--write-queues", type=_COUNT, help="Instead of --queues, for sends.")


@click.group()
def topic() -> None:
    """Create, alter, list and look at topics."""


@topic.command()
@click.argument("name")
@click.option("--queues", type=_COUNT, help=f"On each broker.  [default: {_QUEUES}]")
@_read_queues
@_write_queues
@click.option("--perm", type=click.Choice(list(PERMS)), default="rw", show_default=True)
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
@namesrv_option
def create(
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str,
    order: str | None,
    groups: tuple[str, ...],
    namesrv: str,
) -> None:
    """Create the topic NAME on all brokers; one that exists is refused.

    With --order global it lies on one broker, has one queue, and refuses to get more.
    """
    if order == "global" and {queues, read_queues, write_queues} - {None, 1}:
        raise click.UsageError("a topic in global order has one queue; leave --queues out")
    if groups and order != "global":
        raise click.UsageError("--group goes with --order global")

    async def work(admin: AsyncAdmin) -> str:
        if order == "global":
            broker = await admin.create_ordered_topic(name, perm=perm, groups=groups)
            return f"1 queue on {broker}, in global order"
        await admin.create_topic(
            name,
            queues or _QUEUES,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order is not None,
        )
        return "created, write only" if perm == "w" else f"{len(await admin.queues(name))} queues"

    click.echo(f"{name}: {_with_admin(namesrv, work)}")


@topic.command()
@click.argument("name")
@click.option("--queues", type=_COUNT, help="On each broker that has the topic.")
@_read_queues
@_write_queues
@click.option("--perm", type=click.Choice(list(PERMS)))
@click.option("--yes", is_flag=True, help="Also where messages become unreachable for consumers.")
@namesrv_option
def alter(
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    yes: bool,
    namesrv: str,
) -> None:
    """Change what is named of the topic NAME on all brokers that have it; the rest stays."""
    if all(value is None for value in (queues, read_queues, write_queues, perm)):
        raise click.UsageError(
            "name what to change: --queues, --read-queues, --write-queues, --perm"
        )

    async def work(admin: AsyncAdmin) -> None:
        await admin.alter_topic(
            name,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            may_hide_messages=yes,
        )

    _with_admin(namesrv, work)
    click.echo(f"{name}: altered")


@topic.command("list")
@click.option("--system", is_flag=True, help="Also those that brokers keep for themselves.")
@namesrv_option
def list_topics(system: bool, namesrv: str) -> None:
    """List the topics, one a line."""
    for name in _with_admin(namesrv, lambda admin: admin.topics(with_system=system)):
        click.echo(name)


@topic.command()
@click.argument("name")
@namesrv_option
def status(name: str, namesrv: str) -> None:
    """Show each queue of the topic NAME: its offsets, how many messages, the time of the last."""
    found = _with_admin(namesrv, lambda admin: admin.topic_stats(name))
    rows = [_row(queue, offset) for queue, offset in sorted(found.items())]
    total = sum(offset.max_offset - offset.min_offset for offset in found.values())
    rows.append(("all", "", "", "", str(total), ""))
    print_columns([("broker", "queue", "first", "next", "messages", "last"), *rows])


def _row(queue: MessageQueue, offset: TopicOffset) -> tuple[str, ...]:
    first, after = offset.min_offset, offset.max_offset
    numbers = (queue.queue_id, first, after, after - first)
    return queue.broker_name, *map(str, numbers), _time(offset.last_update_timestamp)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else ""


def _with_admin(namesrv: str, work: Callable[[AsyncAdmin], Awaitable[Any]]) -> Any:
    async def ask() -> Any:
        async with AsyncAdmin(namesrv=namesrv) as admin:
            return await work(admin)

    return asyncio.run(ask())
