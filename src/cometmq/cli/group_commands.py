"""The commands about consumer groups: who is in them, how far they are, what they may do.

Asks brokers through the client's admin. Java: mqadmin updateSubGroup, deleteSubGroup
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.group_lag_command import lag
from cometmq.cli.group_member_commands import members, running
from cometmq.cli.group_move_commands import clone, reset, skip
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.group_status import GroupMembers, QueueLag


@click.group(cls=CommandGroup)
def group() -> None:
    """Look at consumer groups, change and move them."""


@group.command("list")
@cluster_options
@json_option
def list_groups(access: ClusterAccess, as_json: bool) -> None:
    """List the consumer groups, one a line."""
    names = access.ask(lambda admin: admin.groups())
    if as_json:
        print_json(names)
    else:
        click.echo("".join(f"{name}\n" for name in names), nl=False)


@group.command()
@click.argument("name", metavar="GROUP")
@cluster_options
@json_option
def show(access: ClusterAccess, as_json: bool, name: str) -> None:
    """Show a GROUP: its settings at each broker, its members, its lag in each topic."""

    async def work(admin: AsyncAdmin) -> tuple[Any, GroupMembers, list[QueueLag]]:
        return (
            await admin.group_config(name),
            await admin.group_members(name, running=False),
            await admin.group_lag(name, owners=False),
        )

    configs, found, lags = access.ask(work)
    topics = [_topic_json(topic, list(each)) for topic, each in groupby(lags, _topic_of)]
    if as_json:
        value = {
            "group": name,
            "settings": {broker: asdict(one) for broker, one in configs.items()},
            "message_model": found.message_model if found.members else None,
            "members": [one.connection.client_id for one in found.members],
            "topics": topics,
        }
        print_json(value)
        return
    kind = f", {found.message_model.lower()}" if found.members else ""
    click.echo(f"{name}: {len(found.members)} members{kind}")
    for broker, config in configs.items():
        facts = asdict(config)
        settings = ", ".join(f"{key} {facts[key]}" for key in _SHOWN_SETTINGS)
        click.echo(f"at {broker}: {settings}")
    if topics:
        rows = [["-" if value is None else value for value in one.values()] for one in topics]
        print_table(("topic", "queues", "lag"), rows)


_SHOWN_SETTINGS = (
    "consume_enable", "consume_message_orderly", "retry_max_times", "retry_queue_nums",
)  # fmt: skip


def _setting_options(command: Any) -> Any:
    """Options for the settings of a group; one that is not given is not changed."""
    flags = {
        "consume_enable": ("--consume/--no-consume", "Whether its members get messages."),
        "consume_message_orderly": ("--orderly/--not-orderly", "Marked as consuming in order."),
        "consume_broadcast_enable": ("--broadcast/--no-broadcast", "Whether it may broadcast."),
        "consume_from_min_enable": (
            "--from-first/--not-from-first", "Whether it may begin with a queue's first message.",
        ),
    }  # fmt: skip
    numbers = {
        "retry_max_times": ("--retry-max-times", "Attempts before a message is a dead letter."),
        "retry_queue_nums": ("--retry-queues", "Queues of its retry topic."),
        "consume_timeout_minute": ("--timeout-minutes", "For a message of POP, minutes."),
    }
    for name, (option, text) in reversed(numbers.items()):
        command = click.option(option, name, type=int, help=text)(command)
    for name, (option, text) in reversed(flags.items()):
        command = click.option(option, name, default=None, help=text)(command)
    return command


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


@group.command()
@click.argument("name", metavar="GROUP")
@_setting_options
@cluster_options
def create(access: ClusterAccess, name: str, **settings: Any) -> None:
    """Create a GROUP on all brokers; one that exists is refused."""
    access.ask(lambda admin: admin.create_group(name, **_given(settings)))
    click.echo(f"{name}: created")


@group.command()
@click.argument("name", metavar="GROUP")
@_setting_options
@cluster_options
def alter(access: ClusterAccess, name: str, **settings: Any) -> None:
    """Change what is named of a GROUP where it is; the rest stays."""
    given = _given(settings)
    if not given:
        raise click.UsageError("name what to change, such as --retry-max-times 3")
    access.ask(lambda admin: admin.alter_group(name, **given))
    click.echo(f"{name}: altered")


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="Forget its settings only.")
@yes_option
@cluster_options
def delete(access: ClusterAccess, name: str, keep_offsets: bool, yes: bool) -> None:
    """Delete a GROUP without members, with its offsets.

    Its dead letters stay: cometmq topic delete %DLQ%GROUP.
    """
    access.ask(lambda admin: admin.group_config(name))
    lost = "its settings" if keep_offsets else "its settings and its offsets"
    confirm(f"Delete the group {name}, {lost}?", yes=yes)
    brokers = access.ask(lambda admin: admin.delete_group(name, keep_offsets=keep_offsets))
    click.echo(f"{name}: deleted at {', '.join(brokers)}")


def _topic_of(one: QueueLag) -> str:
    return one.queue.topic


def _topic_json(topic: str, found: Sequence[QueueLag]) -> dict[str, object]:
    """The lag of a topic; null where it is known of no queue."""
    known = [one.lag for one in found if one.lag is not None]
    return {"topic": topic, "queues": len(found), "lag": sum(known) if known else None}


for _command in (lag, members, running, reset, skip, clone):
    group.add_command(_command)
