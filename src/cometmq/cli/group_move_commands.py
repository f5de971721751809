"""The commands that move consumer groups: reset, skip, clone.

What is to be moved is shown first, and done when it is confirmed.
Java: mqadmin resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import counted, shown_number
from cometmq.cli.time_arguments import time_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.model.group_status import OffsetMove

_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


@click.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", required=False)
@click.option(
    "--to", required=True, metavar="PLACE",
    help="earliest, latest, an offset, or a time: 2026-01-31T08:00 (UTC), or as long ago as 15m.",
)  # fmt: skip
@_dry_run
@yes_option
@cluster_options
@json_option
def reset(
    access: ClusterAccess,
    as_json: bool,
    name: str,
    topic: str | None,
    to: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move a GROUP in all queues of a TOPIC, or of all topics where it has been.

    Running members go there with their next pull. An offset beyond the ends of a queue means its
    end. The messages that it is to handle again stay as they are.
    """
    _reset(access, name, topic, to, as_json=as_json, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", required=False)
@_dry_run
@yes_option
@cluster_options
@json_option
def skip(
    access: ClusterAccess, as_json: bool, name: str, topic: str | None, dry_run: bool, yes: bool
) -> None:
    """Have a GROUP skip all that is stored in a TOPIC now, or in all topics where it has been."""
    _reset(access, name, topic, "latest", as_json=as_json, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("source", metavar="GROUP")
@click.argument("target", metavar="OTHER")
@click.option("--topic", help="In this topic only.")
@yes_option
@cluster_options
def clone(access: ClusterAccess, source: str, target: str, topic: str | None, yes: bool) -> None:
    """Let the group OTHER go on where GROUP is, in all its topics; made where it is missing."""
    where = f"the topic {topic}" if topic else "all its topics"
    confirm(f"Move the group {target} to where {source} is in {where}?", yes=yes)
    access.ask(lambda admin: admin.clone_group(source, target, topic))
    click.echo(f"{target}: where {source} is")


def _reset(
    access: ClusterAccess,
    name: str,
    topic: str | None,
    to: str,
    *,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    place, is_time = _place(to)

    def moves(*, dry_run: bool) -> list[OffsetMove]:
        return access.ask(
            lambda admin: admin.reset_group(name, topic, place, at_ms=is_time, dry_run=dry_run)
        )

    if dry_run or not yes:
        planned = moves(dry_run=True)
        if dry_run or not as_json:
            _print(planned, as_json=as_json, is_done=False)
        if dry_run:
            return
        confirm(f"Move the group {name} in {_where(planned)}?", yes=yes)
    done = moves(dry_run=False)
    if as_json or yes:
        _print(done, as_json=as_json, is_done=True)
    if not as_json:
        click.echo(f"{name}: moved in {_where(done)}")


def _where(moves: Sequence[OffsetMove]) -> str:
    topics = sorted({one.queue.topic for one in moves})
    return f"{counted(len(moves), 'queue')} of {', '.join(topics)}"


def _place(to: str) -> tuple[str | int, bool]:
    """Where a group is to go, and whether that is a time."""
    if to in ("earliest", "latest"):
        return to, False
    if to.isdecimal() and to.isascii() and len(to) < 20:
        return int(to), False
    if (at_ms := time_ms(to)) is None:
        raise click.BadParameter(
            f"{to!r} is neither earliest, latest, an offset nor a time such as "
            "2026-01-31T08:00 or 15m",
            param_hint="--to",
        )
    return at_ms, True


def _print(moves: Sequence[OffsetMove], *, as_json: bool, is_done: bool) -> None:
    if as_json:
        rows = [
            {
                "topic": one.queue.topic,
                "broker": one.queue.broker_name,
                "queue_id": one.queue.queue_id,
                "before": one.before,
                "after": one.after,
            }
            for one in moves
        ]
        print_json({"moved": is_done, "queues": rows})
        return
    cells = [(*one.queue, shown_number(one.before), one.after, _skipped(one)) for one in moves]
    print_table(("topic", "broker", "queue", "before", "after", "by"), cells)


def _skipped(one: OffsetMove) -> str:
    return "-" if one.before is None else str(one.after - one.before)
