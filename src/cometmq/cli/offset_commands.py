"""The commands that save the offsets of groups in a file and restore them.

The file is JSON: {"version": 1, "groups": {GROUP: [{"topic", "broker", "queue_id", "offset"}]}}.
Java: none; mqadmin's exportMetadata leaves offsets out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import counted, shown_number
from cometmq.errors import SettingsError
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.model.group_status import OffsetMove

_VERSION = 1


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Save the offsets of consumer groups, and restore them."""


@offsets.command("export")
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@click.option("-o", "--output", type=click.File("w"), default="-", help="Where to.  [stdout]")
@cluster_options
def export_offsets(access: ClusterAccess, groups: tuple[str, ...], output: TextIO) -> None:
    """Write the committed offsets of these GROUPs, or of all, as JSON."""
    found = access.ask(lambda admin: admin.committed_offsets(groups))
    tables = {
        group: [
            {"topic": q.topic, "broker": q.broker_name, "queue_id": q.queue_id, "offset": at}
            for q, at in table.items()
        ]
        for group, table in found.items()
    }
    json.dump({"version": _VERSION, "groups": tables}, output, indent=1)
    output.write("\n")


@offsets.command("import")
@click.argument("file", type=click.File("r"))
@click.option("--group", "groups", multiple=True, help="Only this group; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@cluster_options
@json_option
def import_offsets(
    access: ClusterAccess,
    as_json: bool,
    file: TextIO,
    groups: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Move groups to the offsets in FILE, as `export` wrote it; "-" is stdin.

    Groups that are missing are made, queues that are missing are left out, and an offset beyond the
    ends of a queue means its end.
    """
    wanted = _read(file)
    if missing := set(groups) - set(wanted):
        raise SettingsError(f"the file has no offsets of {', '.join(sorted(missing))}")
    if groups:
        wanted = {group: wanted[group] for group in groups}
    planned = access.ask(lambda admin: admin.restore_offsets(wanted, dry_run=True))
    if dry_run or not as_json:
        _print(planned, as_json=as_json, is_done=False)
    if dry_run:
        return
    confirm(f"Move {counted(len(planned), 'group')}?", yes=yes)
    done = access.ask(lambda admin: admin.restore_offsets(wanted))
    if as_json:
        _print(done, as_json=True, is_done=True)
    else:
        click.echo(f"moved {counted(len(done), 'group')}")


def _read(file: TextIO) -> dict[str, dict[MessageQueue, int]]:
    """The offsets in a file; SettingsError for one that `export` has not written."""
    try:
        found = json.load(file)
        if found["version"] != _VERSION:
            raise SettingsError(
                f"{file.name} is of version {found['version']!r:.20}, not {_VERSION}"
            )
        return {group: dict(map(_entry, rows)) for group, rows in found["groups"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise SettingsError(
            f"{file.name} is no file of `cometmq offsets export`: {why:.80}"
        ) from error


def _entry(row: dict[str, Any]) -> tuple[MessageQueue, int]:
    return MessageQueue(row["topic"], row["broker"], row["queue_id"]), row["offset"]


def _print(moves: dict[str, list[OffsetMove]], *, as_json: bool, is_done: bool) -> None:
    rows = [
        (group, *one.queue, one.before, one.after) for group, each in moves.items() for one in each
    ]
    if as_json:
        names = ("group", "topic", "broker", "queue_id", "before", "after")
        queues = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"moved": is_done, "queues": queues})
        return
    cells = [(*row[:4], shown_number(row[4]), row[5]) for row in rows]
    print_table(("group", "topic", "broker", "queue", "before", "after"), cells)
