"""The commands for a store that no broker uses: verify, dump, repair, rebuild-table,
rebuild-slave. `snapshot` and `unreplicated` are in files of their own.

They read with the store's own checks; only the last three change anything. `verify` exits with 1
when data is lost or a start does not mend what it found.
Java: none.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.record_lines import record_facts, record_line
from cometmq.cli.snapshot_command import snapshot
from cometmq.cli.unreplicated_commands import unreplicated
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
from cometmq.store.index.index_check import DEFAULT_INDEX_LAYOUT
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.lost_tables import TABLES, TableRebuilder
from cometmq.store.recovery.emptied_store import empty_store
from cometmq.store.recovery.inspection import Inspection
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.store.recovery.store_repair import StoreRepair
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.store.recovery.inspection import InspectionReport

_directory = click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
_commit_log = click.option(
    "--commit-log",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="storePathCommitLog of the store.  [default: commitlog in DIRECTORY]",
)
_LINES_MAX = 20
_BODY_SHOWN = 60
_COST = {
    "topics.json": "Permissions, attributes and queues without a message are not known any more.",
    "subscriptionGroup.json": "The groups have default settings now.",
    "consumerOffset.json": "Every group begins where a new one does.",
    "delayOffset.json": "The next start finds out what was delivered; a few may be repeated.",
    "consumerFilter.json": "Consumers bring their filters back with their next heartbeat.",
    "deletedTopics.json": "Messages of topics deleted lately may come back.",
    "replication.json": "The broker is again what its settings say, and knows of no promotion.",
}
"""What is lost with each table that is made anew."""


@click.group(cls=CommandGroup)
def store() -> None:
    """Copy a store whose broker may run; verify, repair and dump a stopped one."""


store.add_command(unreplicated)
store.add_command(snapshot)


_index_slots = click.option(
    "--index-slots", default=DEFAULT_INDEX_LAYOUT.slots, help="maxHashSlotNum of the store."
)
_index_entries = click.option(
    "--index-entries", default=DEFAULT_INDEX_LAYOUT.entries, help="maxIndexNum of the store."
)


@store.command()
@_directory
@_index_slots
@_index_entries
@_commit_log
def verify(directory: Path, index_slots: int, index_entries: int, commit_log: Path | None) -> int:
    """Read a whole store, every checksum included, and say what is whole and what is not.

    Exit code 1: something is lost, or only `repair` mends it.
    """
    with _inspect(directory, index_slots, index_entries, commit_log) as inspection:
        report = inspection.verify()
    _print(report)
    return 1 if report.damage or report.repairs else 0


@store.command()
@_directory
@_index_slots
@_index_entries
@_commit_log
@click.option("--accept-loss", is_flag=True, help="Give up what `verify` calls LOST.")
def repair(
    directory: Path,
    index_slots: int,
    index_entries: int,
    commit_log: Path | None,
    accept_loss: bool,
) -> int:
    """Verify a store and have the next start build its queues and its index anew.

    What is lost is given up with --accept-loss alone; else nothing is changed. Copy it first.
    """
    with _inspect(directory, index_slots, index_entries, commit_log) as inspection:
        report = inspection.verify()
        _print(report)
        if report.damage and not accept_loss:
            click.echo("nothing was changed: give up what is LOST with --accept-loss")
            return 1
        if not (report.damage or report.repairs or report.notes):
            click.echo("there is nothing to repair")
            return 0
        StoreRepair(SystemFiles(), inspection.directory, inspection.log_files).run(report.lost)
    click.echo("repaired: the next start reads the whole log and builds queues and index anew")
    return 0


def _inspect(
    directory: Path, index_slots: int, index_entries: int, commit_log: Path | None
) -> Inspection:
    shape = IndexFileLayout(index_slots, index_entries)
    return Inspection(directory, SystemFiles(), shape, commit_log, _tags_code)


def _tags_code(topic: str, raw: bytes, _store_ms: int) -> int | None:
    """The code of a tag; that of a delayed message depends on the broker's settings."""
    if topic == SCHEDULE_TOPIC:
        return None
    tag = properties.find(raw, b"TAGS")
    return 0 if tag is None else tags_code_of(tag)


def _print(report: InspectionReport) -> None:
    click.echo(
        f"{report.records} records of {len(report.topics)} topics in {report.queues} queues, "
        f"bytes {report.first} to {report.end}"
    )
    for topic, count in report.topics.most_common(_LINES_MAX):
        click.echo(f"  {count:>12}  {topic}")
    if report.light_queues:
        click.echo(
            f"{report.light_queues} queues of light topics (%LMQ%...) are not looked at and left "
            "alone: only Apache's broker serves them"
        )
    if not report.was_stopped:
        click.echo("the last broker did not stop in order; the next start reads the end again")
    for title, lines in (
        ("at the next start", report.notes),
        ("to be repaired", report.repairs),
        ("in doubt", report.doubts),
        ("LOST", report.damage),
    ):
        for line in lines[:_LINES_MAX]:
            click.echo(f"{title}: {line}")
        if len(lines) > _LINES_MAX:
            click.echo(f"{title}: and {len(lines) - _LINES_MAX} more")
    if not report.damage:
        is_whole = not (report.notes or report.repairs or report.doubts)
        click.echo("whole" if is_whole else "nothing is lost")


@store.command()
@_directory
@click.option("--from", "start", type=int, default=-1, help="Byte of the log to start at.")
@click.option("--topic", default=None, help="Records of this topic only.")
@click.option("--queue", type=int, default=None, help="Records of this queue only.")
@click.option("--count", type=click.IntRange(1), default=None, help="How many records at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, bodies whole.")
@_commit_log
def dump(
    directory: Path,
    start: int,
    topic: str | None,
    queue: int | None,
    count: int | None,
    as_json: bool,
    commit_log: Path | None,
) -> None:
    """Print the records of a store in the order of the log."""
    with Inspection(directory, SystemFiles(), commit_log=commit_log) as inspection:
        wanted = (
            record
            for record in inspection.records(start)
            if topic in (None, record.topic) and queue in (None, record.queue_id)
        )
        for record in islice(wanted, count):
            click.echo(json.dumps(record_facts(record)) if as_json else record_line(record))


@store.command("rebuild-table")
@_directory
@click.argument("name", metavar="FILE", type=click.Choice(tuple(TABLES)))
def rebuild_table(directory: Path, name: str) -> None:
    """Make a FILE of config/ anew that was lost or damaged: topics.json and the like.

    Topics come from the queues, groups from the offsets; every other table becomes empty. What
    FILE and its .bak held is kept beside them as .damaged.
    """
    made = TableRebuilder(SystemFiles(), directory).rebuild(name, SystemClock().now_ms())
    click.echo(f"{name} has {len(made)} entries now{':' if made else ''}")
    for each in made:
        click.echo(f"  {each}")
    click.echo(_COST[name])


@store.command("rebuild-slave")
@_directory
@_commit_log
def rebuild_slave(directory: Path, commit_log: Path | None) -> None:
    """Empty the store of a stopped slave whose history is not its master's; nothing is deleted.

    All that it holds moves to replaced-TIME in DIRECTORY. The slave's next start copies the
    master anew, from the master's last file on.
    """
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    files = SystemFiles()
    places = empty_store(files, StoreDirectory(files, directory, commit_log), stamp)
    click.echo(f"{directory} is empty now; what it held is in {' and '.join(map(str, places))}")
