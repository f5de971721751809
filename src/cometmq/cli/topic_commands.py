"""The commands about topics: create, alter, delete, list.

Asks name servers and brokers through the client's admin. Looking at topics is in
`topic_status_commands`, sending and reading in `topic_reading_commands`.
Java: mqadmin updateTopic, updateTopicPerm, deleteTopic, topicList
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import counted
from cometmq.cli.topic_reading_commands import peek, send, tail
from cometmq.cli.topic_status_commands import allocate, route, stats, status
from cometmq.errors import RouteNotFound
from cometmq.model.topic import PERMS, QUEUES_MAX

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin

_QUEUES = 8
_COUNT = click.IntRange(1, QUEUES_MAX)
_read_queues = click.option("--read-queues", type=_COUNT, help="Instead of --queues, for readers.")
_write_queues = click.option("--write-queues", type=_COUNT, help="Instead of --queues, for sends.")


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, alter and delete topics, look at them, send and read."""


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
@click.option(
    "--broker",
    "brokers",
    metavar="BROKER",
    multiple=True,
    help="Only on this one, as on one that came later; may be repeated.",
)
@cluster_options
def create(
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str,
    order: str | None,
    groups: tuple[str, ...],
    brokers: tuple[str, ...],
    access: ClusterAccess,
) -> None:
    """Create the topic NAME on all brokers, or on those named; one that exists is refused.

    With --order global it lies on one broker, has one queue, and refuses to get more.
    """
    if order == "global" and {queues, read_queues, write_queues} - {None, 1}:
        raise click.UsageError("a topic in global order has one queue; leave --queues out")
    if groups and order != "global":
        raise click.UsageError("--group goes with --order global")
    if brokers and order == "global":
        raise click.UsageError("--broker does not go with --order global")

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
            brokers=brokers,
        )
        return (
            "created, write only"
            if perm == "w"
            else counted(len(await admin.queues(name)), "queue")
        )

    click.echo(f"{name}: {access.ask(work)}")


@topic.command()
@click.argument("name")
@click.option("--queues", type=_COUNT, help="On each broker that has the topic.")
@_read_queues
@_write_queues
@click.option("--perm", type=click.Choice(list(PERMS)))
@click.option("--yes", is_flag=True, help="Also where messages become unreachable for consumers.")
@cluster_options
def alter(
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    yes: bool,
    access: ClusterAccess,
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

    access.ask(work)
    click.echo(f"{name}: altered")


@topic.command()
@click.argument("name")
@yes_option
@cluster_options
def delete(access: ClusterAccess, name: str, yes: bool) -> None:
    """Delete the topic NAME with its messages, everywhere."""
    held = access.ask(lambda admin: _held(admin, name))
    confirm(f"Delete the topic {name} with {held}?", yes=yes)
    brokers = access.ask(lambda admin: admin.delete_topic(name))
    click.echo(f"{name}: deleted on {', '.join(brokers)}")


async def _held(admin: AsyncAdmin, name: str) -> str:
    """How many messages a topic holds, in words."""
    await admin.topic_config(name)
    try:
        queues = await admin.topic_stats(name)
    except RouteNotFound:  # it may not be read now
        return "its messages"
    return f"its {sum(one.max_offset - one.min_offset for one in queues.values()):,} messages"


@topic.command("list")
@click.option("--system", is_flag=True, help="Also those that brokers keep for themselves.")
@cluster_options
@json_option
def list_topics(access: ClusterAccess, as_json: bool, system: bool) -> None:
    """List the topics, one a line."""
    names = access.ask(lambda admin: admin.topics(with_system=system))
    if as_json:
        print_json(names)
        return
    for name in names:
        click.echo(name)


for _command in (status, route, stats, allocate, send, peek, tail):
    topic.add_command(_command)
