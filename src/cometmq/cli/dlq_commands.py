"""The commands about dead letters: list, show, redrive, drop, export.

`cometmq pipeline deadletters` keeps them in a table; its `redrive` sends rows of that. Java: none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.redrive_options import (
    ShownProgress,
    choice_options,
    print_report,
    rate_option,
    yes_option,
)
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import message_json, shown_body, shown_number, shown_time
from cometmq.client.admin.nearest_name import nearest
from cometmq.errors import GroupNotFound
from cometmq.model.message import Property

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import RedriveReport


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Look at dead letters, messages that a group has given up, and send them again."""


@dlq.command("list")
@cluster_options
@json_option
def list_groups(access: ClusterAccess, as_json: bool) -> None:
    """List the groups that have a dead-letter topic, and how many letters lie there."""
    found = access.ask(lambda admin: admin.dead_letters())
    if as_json:
        print_json([{"group": name, "letters": count} for name, count in found.items()])
        return
    print_table(
        ("group", "letters"), [(name, shown_number(count)) for name, count in found.items()]
    )


@dlq.command()
@click.argument("group")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--oldest", is_flag=True, help="The oldest instead of the newest.")
@choice_options
@cluster_options
@json_option
def show(
    access: ClusterAccess,
    as_json: bool,
    group: str,
    count: int,
    oldest: bool,
    chosen: dict[str, Any],
) -> None:
    """Show the newest dead letters of a GROUP: where each came from, and why it was given up.

    CometMQ's clients write the reason; Java's do not.
    """

    async def work(admin: AsyncAdmin) -> list[MessageExt]:
        known = await admin.dead_letters()
        if group not in known:
            await admin.group_config(group)
            raise GroupNotFound(f"the group {group} has no dead letters{nearest(group, known)}")
        return await admin.find_dead_letters(group, count, oldest=oldest, **chosen)

    letters = access.ask(work)
    if as_json:
        print_json([{**message_json(one), **_facts(one)} for one in letters])
        return
    rows = [
        (
            shown_time(one.store_ms),
            *(value or "-" for value in _facts(one).values()),
            " ".join(one.keys) or "-",
            shown_body(one.body),
        )
        for one in letters
    ]
    print_table(("since", "id", "from", "attempts", "reason", "keys", "body"), rows)


def _facts(letter: MessageExt) -> dict[str, str | None]:
    """What became of a letter, as far as somebody wrote it down."""
    said = letter.properties
    origin_id = said.get(Property.DLQ_ORIGIN_MESSAGE_ID) or said.get(Property.ORIGIN_MESSAGE_ID)
    origin = said.get(Property.DLQ_ORIGIN_TOPIC) or said.get(Property.RETRY_TOPIC)
    return {
        "origin_msg_id": origin_id or letter.msg_id,
        "origin_topic": origin,
        "attempts": said.get(Property.DLQ_ATTEMPTS),
        "reason": said.get(Property.DLQ_REASON),
    }


@dlq.command()
@click.argument("group")
@click.option("--to", help="The topic to send to.  [where each came from]")
@click.option("--to-group", is_flag=True, help="To this group alone, by its retry topic.")
@choice_options
@rate_option
@yes_option
@cluster_options
@json_option
def redrive(
    access: ClusterAccess,
    as_json: bool,
    group: str,
    to: str | None,
    to_group: bool,
    chosen: dict[str, Any],
    rate: float,
    yes: bool,
) -> None:
    """Send dead letters of a GROUP again, each once, those of a sharding key in their order."""

    async def work(admin: AsyncAdmin) -> RedriveReport:
        with ShownProgress("letters") as show:
            return await admin.redrive_dead_letters(
                group,
                to=to,
                to_group=to_group,
                **chosen,
                rate=rate,
                dry_run=not yes,
                progress=show,
            )

    print_report(access.ask(work), "sent", as_json=as_json)


@dlq.command()
@click.argument("group")
@choice_options
@yes_option
@cluster_options
@json_option
def drop(
    access: ClusterAccess, as_json: bool, group: str, chosen: dict[str, Any], yes: bool
) -> None:
    """Let dead letters of a GROUP count as done, so that `redrive` leaves them out."""
    report = access.ask(lambda admin: admin.drop_dead_letters(group, **chosen, dry_run=not yes))
    print_report(report, "dropped", as_json=as_json)


@dlq.command()
@click.argument("group")
@click.argument("file", type=click.File("w", lazy=False), default="-")
@choice_options
@cluster_options
def export(access: ClusterAccess, group: str, file: TextIO, chosen: dict[str, Any]) -> None:
    """Write the dead letters of a GROUP that are not done to FILE, one JSON object a line."""
    for one in access.ask(lambda admin: admin.open_dead_letters(group, **chosen)):
        file.write(json.dumps({**message_json(one), **_facts(one)}) + "\n")
