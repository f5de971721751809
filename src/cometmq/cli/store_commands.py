"""The commands for a store that no broker uses: verify, dump.

They read with the store's own checks and change nothing. `verify` exits with 1 when data is lost.
Java: none.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cometmq.model.message import Property
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.index.index_check import DEFAULT_INDEX_LAYOUT
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.recovery.inspection import Inspection, InspectionReport
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.message_id import offset_id

if TYPE_CHECKING:
    from cometmq.wire.records.log_record import StoredRecord

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


@click.group()
def store() -> None:
    """Verify and dump a stopped store."""


@store.command()
@_directory
@click.option(
    "--index-slots", default=DEFAULT_INDEX_LAYOUT.slots, help="maxHashSlotNum of the store."
)
@click.option(
    "--index-entries", default=DEFAULT_INDEX_LAYOUT.entries, help="maxIndexNum of the store."
)
@_commit_log
def verify(directory: Path, index_slots: int, index_entries: int, commit_log: Path | None) -> int:
    """Read a whole store, every checksum included, and say what is whole and what is not."""
    shape = IndexFileLayout(index_slots, index_entries)
    with Inspection(directory, SystemFiles(), shape, commit_log) as inspection:
        report = inspection.verify()
    _print(report)
    return 1 if report.damage else 0


def _print(report: InspectionReport) -> None:
    click.echo(
        f"{report.records} records of {len(report.topics)} topics in {report.queues} queues, "
        f"bytes {report.first} to {report.end}"
    )
    for topic, count in report.topics.most_common(_LINES_MAX):
        click.echo(f"  {count:>12}  {topic}")
    if not report.was_stopped:
        click.echo("the last broker did not stop in order; the next start reads the end again")
    for title, lines in (("to be mended at the next start", report.notes), ("LOST", report.damage)):
        for line in lines[:_LINES_MAX]:
            click.echo(f"{title}: {line}")
        if len(lines) > _LINES_MAX:
            click.echo(f"{title}: and {len(lines) - _LINES_MAX} more")
    if not report.damage:
        click.echo("whole")


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
            click.echo(json.dumps(_facts(record)) if as_json else _line(record))


def _line(record: StoredRecord) -> str:
    pairs = stored.text_properties(record)
    time = datetime.fromtimestamp(record.store_ms / 1000, UTC).isoformat(" ", "milliseconds")
    body = record.body[:_BODY_SHOWN].decode("utf-8", "backslashreplace")
    return (
        f"{record.phy_offset:>14} {time[:23]} {record.topic} {record.queue_id} "
        f"{record.queue_offset} {pairs.get(Property.TAGS, '-')} "
        f"{pairs.get(Property.KEYS, '-')} {len(record.body)} {body!r}"
    )


def _facts(record: StoredRecord) -> dict[str, object]:
    return {
        "offsetMsgId": offset_id(record.store_host, record.phy_offset),
        "physicalOffset": record.phy_offset,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "properties": stored.text_properties(record),
        "body": record.body.decode("utf-8", "backslashreplace"),
    }
