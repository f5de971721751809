"""`cometmq store unreplicated`: what a former master had alone, listed, shown and sent again.

The files lie in the store's directory; its broker may run meanwhile. Java: none.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.record_lines import record_facts, record_line
from cometmq.cli.shared_options import json_option
from cometmq.errors import StoreError
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.recovery.unreplicated import UnreplicatedFiles

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess

_directory = click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
_name = click.argument("name", metavar="FILE")


@click.group(cls=CommandGroup)
def unreplicated() -> None:
    """What a former master had alone when another one was promoted."""


@unreplicated.command("list")
@_directory
@json_option
def list_files(directory: Path, as_json: bool) -> None:
    """List the files of the store in DIRECTORY, and how many messages each holds."""
    files = UnreplicatedFiles(SystemFiles(), directory)
    rows = [
        {"file": one.name, "records": sum(1 for _ in files.records(one)), "resent": one.is_resent}
        for one in files.all()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(("file", "records", "resent"), [list(row.values()) for row in rows])


@unreplicated.command()
@_directory
@_name
@click.option("-n", "--count", type=click.IntRange(1), help="How many at most.  [default: all]")
@json_option
def show(directory: Path, name: str, count: int | None, as_json: bool) -> None:
    """Print the records of FILE in the order of the log."""
    files = UnreplicatedFiles(SystemFiles(), directory)
    for record in islice(files.records(files.find(name)), count):
        click.echo(json.dumps(record_facts(record)) if as_json else record_line(record))


@unreplicated.command()
@_directory
@_name
@click.option("--broker", required=True, help="The name of the brokers that it was one of.")
@yes_option
@cluster_options
def resend(access: ClusterAccess, directory: Path, name: str, broker: str, yes: bool) -> None:
    """Send the messages of FILE to the master now, in their order and to their queues.

    Whoever sent one that was answered 12 may have sent it again: look at them first.
    """
    files = UnreplicatedFiles(SystemFiles(), directory)
    one = files.find(name)
    if one.is_resent:
        raise StoreError(f"{name} was sent again already")
    confirm(f"Send the messages of {name} to {broker}?", yes=yes)
    counts = access.ask(lambda admin: admin.resend_records(broker, files.records(one)))
    files.mark_resent(one)
    for topic, number in sorted(counts.items()):
        click.echo(f"{number:,} {f'sent to {topic}' if topic else 'left out: no whole messages'}")
