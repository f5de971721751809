"""The job `archive`: topics to a table of Parquet files, exactly once, as a run or continuously.

A run adds what the topics hold when it starts and ends; running again adds nothing twice, also
after a kill at any point. Continuously it does so every so many seconds until it is stopped.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.connection_security import SECURITY_OPTIONS
from cometmq.spark.tables.archive_rows import ArchiveRows
from cometmq.spark.tables.compaction import compact as merge_small_files
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_appender import TableAppender, TableProgress
from cometmq.spark.tables.table_logs import table_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from cometmq.spark.tables.table_appender import TableRows

ROWS_MAX = 1_000_000
SOURCE_OPTIONS = (
    *SECURITY_OPTIONS,
    "brokers",
    "group",
    "timeoutMs",
    "retryForMs",
    "slots",
    "minPartitions",
)
"""Options of the source that a job of these tables takes."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run of `archive` did."""

    rows: int
    """Messages added as rows."""
    misfits: int
    """Messages added as misfits."""
    commits: int
    merged_files: int
    """Small files that were merged into others."""


def archive(
    spark: SparkSession,
    topics: str | Sequence[str],
    directory: str | Path,
    *,
    namesrv: str | None = None,
    schema: str | None = None,
    partition: str = "day",
    keep_body: bool = False,
    max_rows: int = ROWS_MAX,
    fail_on_data_loss: bool = True,
    compact: bool = True,
    every_s: float | None = None,
    stop: threading.Event | None = None,
    report: Callable[[TableProgress], None] | None = None,
    iceberg: str | Catalog | None = None,
    options: Mapping[str, str] | None = None,
) -> ArchiveResult:
    """Append what topics hold to a table of Parquet files in `directory`; each message once.

    A run goes on where the last commit ended, whatever happened to the last run. Read the table
    with `read_archive`; other readers take the files of `archive_files`.

    - `topics`: one or several names. `namesrv` default: the environment's NAMESRV_ADDR.
    - `schema`: the fields of JSON bodies as Spark's DDL; they become the column `value`, and the
      body is dropped unless `keep_body`. Messages that do not fit are kept as misfits, with the
      reason (`read_archive(..., misfits=True)`). A field that is NOT NULL must be there; fields
      that the schema does not name are ignored. Default: bodies as they are.
    - `partition`: `day` (default) or `hour` of the store time, `none`, or an expression with an
      alias, such as `to_date(value.time) AS day`.
    - `max_rows`: messages of a commit at most, 1,000,000.
    - `fail_on_data_loss`: with False, messages that retention deleted before they were archived
      leave a hole, which `verify_archive` names.
    - `compact`: merge small files after the commits.
    - `every_s`: seconds between the starts of runs, which go on until `stop` is set. Default: one
      run. `stop` is looked at after each commit.
    - `iceberg`: a catalog of pyiceberg or its name; `directory` is then a table, `lake.orders`.
    - `report` is called before and after each commit; `options` are those of `SOURCE_OPTIONS`.

    Raises SettingsError, BrokerAway, DataLoss, TableHasNewerWriter, and CometError for errors of
    Spark.
    Only one job may write to a table: the later one shuts out the earlier.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    source = source_of({"subscribe": ",".join(names)}, namesrv, options)
    return keep_table(
        spark,
        directory,
        ArchiveRows(schema, partition, keep_body),
        source,
        max_rows=max_rows,
        fail_on_data_loss=fail_on_data_loss,
        compact=compact,
        every_s=every_s,
        stop=stop,
        report=report,
        iceberg=iceberg,
    )


def keep_table(
    spark: SparkSession,
    directory: str | Path,
    rows: TableRows,
    source: Mapping[str, str],
    *,
    max_rows: int,
    fail_on_data_loss: bool,
    compact: bool,
    every_s: float | None,
    stop: threading.Event | None,
    report: Callable[[TableProgress], None] | None,
    iceberg: str | Catalog | None = None,
) -> ArchiveResult:
    """What `archive` does, for any rows and any options of the source; see there."""
    log = table_log(spark, directory, iceberg)
    _check(max_rows, every_s)
    table = TableAppender(
        spark, log, rows, source, max_rows=max_rows, fail_on_data_loss=fail_on_data_loss
    )
    ends = stop or threading.Event()

    def run() -> ArchiveResult:
        done = table.append(report or _ignore, ends)
        merged = 0
        if compact and done.commits and isinstance(log, ManifestLog):
            merged = merge_small_files(spark, log)
        return ArchiveResult(done.rows, done.misfits, done.commits, merged)

    try:
        return run() if every_s is None else _repeat(run, every_s, ends)
    finally:
        table.close()


def source_of(
    selection: Mapping[str, str], namesrv: str | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    """Options of the source; raises SettingsError for one that a job decides by itself."""
    known = {name.lower(): name for name in SOURCE_OPTIONS}
    for name in options or {}:
        if name.lower() not in known:
            raise SettingsError(
                f"the option {name} of the source cannot be given here: there are "
                f"{', '.join(SOURCE_OPTIONS)}"
            )
    more = {known[name.lower()]: text for name, text in (options or {}).items()}
    where = {"namesrv": namesrv} if namesrv else {}
    return {**where, **selection, **more}


def _repeat(
    run: Callable[[], ArchiveResult], every_s: float, ends: threading.Event
) -> ArchiveResult:
    total = ArchiveResult(0, 0, 0, 0)
    while not ends.is_set():
        begin_s = time.monotonic()
        done = run()
        total = ArchiveResult(
            total.rows + done.rows,
            total.misfits + done.misfits,
            total.commits + done.commits,
            total.merged_files + done.merged_files,
        )
        ends.wait(max(0.0, begin_s + every_s - time.monotonic()))
    return total


def _check(max_rows: int, every_s: float | None) -> None:
    if max_rows < 1:
        raise SettingsError(f"max_rows is {max_rows}: it must be at least 1")
    if every_s is not None and every_s <= 0:
        raise SettingsError(f"every_s is {every_s}: it must be above 0")


def _ignore(_progress: TableProgress) -> None:
    """Without a callback nothing is reported."""
