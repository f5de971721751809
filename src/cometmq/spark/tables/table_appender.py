"""Appends what topics hold to a table of files, and commits the offsets with the data.

The engine of the jobs that copy topics into a table: a job says what rows it makes (`TableRows`),
the engine plans, reads, writes, counts what was written, and commits. Spark's checkpoints are not
used: what the table holds is said by the table alone, so that a run can be repeated, or killed at
any point.
Invariant: a commit holds exactly the messages of its offset ranges, each once, or is not made.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.errors import CometError, DataLoss, MessagesDeleted, SettingsError
from cometmq.spark.source import columns, source_options
from cometmq.spark.source.cluster_client import ClusterClient
from cometmq.spark.source.planned_offsets import PlannedOffsets
from cometmq.spark.tables.archived_ranges import ArchivedRanges
from cometmq.spark.tables.commit_planning import plan_commit, waiting
from cometmq.spark.tables.exact_reads import read_exactly
from cometmq.spark.tables.manifest import DEAD, ROWS
from cometmq.spark.tables.parquet_writing import exact_times, parquet_writer
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from threading import Event

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.queue_positions import Positions
    from cometmq.spark.tables.archived_ranges import ArchivedQueues
    from cometmq.spark.tables.commit_planning import PlannedCommit
    from cometmq.spark.tables.manifest import DataFile

_REPLANS_MAX = 4
_REPLAN_PAUSE_S = 3.0
"""Apache's brokers take ten seconds to say where a queue begins since retention deleted a file."""
_TASK_ROWS_MIN = 20_000
"""Messages of a task at least: every task costs time, and writes a file."""

_log = logging.getLogger("cometmq.spark")


class TableRows(Protocol):
    """What a job makes of messages. The columns of `PLACE` must be among the results."""

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run; JSON values."""

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the source that are read."""

    @property
    def may_misfit(self) -> bool:
        """Whether `misfits` can have rows."""

    def shaped(self, frame: DataFrame) -> DataFrame:
        """Every message of the source once; the column `reason` is null for those that fit."""

    def rows(self, shaped: DataFrame) -> DataFrame:
        """The messages that fit."""

    def partition_columns(self, rows: DataFrame) -> list[str]:
        """The columns by which the files of `rows` are divided."""

    def misfits(self, shaped: DataFrame) -> DataFrame:
        """The others."""


class TableLog(Protocol):
    """Where the commits of a table are kept: `ManifestLog`, or Iceberg's snapshots."""

    @property
    def archived(self) -> ArchivedQueues:
        """What the table holds."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the first commit; empty before it."""

    def begin(self, settings: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
        """Get ready to write what has these settings, and these schemas by kind."""

    def new_commit(self) -> str:
        """A name for the directories of the next commit, never used before."""

    def uri(self, kind: str, commit: str) -> str:
        """The directory to which Spark writes."""

    def written(self, commit: str) -> list[DataFile]:
        """What Spark has written for a commit, kept whatever happens next."""

    def commit(self, archived: ArchivedQueues, files: Sequence[DataFile]) -> None:
        """Add files and offsets, all at once."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far a run is."""

    rows: int = 0
    misfits: int = 0
    commits: int = 0
    waiting: int = 0
    """Messages that this run is still to add."""


class TableAppender:
    """One table and the topics that are appended to it. One thread, one job at a time."""

    def __init__(
        self,
        spark: SparkSession,
        log: TableLog,
        rows: TableRows,
        source: Mapping[str, str],
        *,
        max_rows: int,
        fail_on_data_loss: bool,
    ) -> None:
        """`source` are options of the source that say where and what to read, not from when."""
        self._spark = spark
        self._log = log
        self._rows = rows
        self._source = {**source, "columns": ",".join(rows.source_columns)}
        self._max_rows = max_rows
        self._fail_on_data_loss = fail_on_data_loss
        options = source_options.parse(self._source)
        self._settings = {"topics": str(options.selection), **rows.settings}
        _check_settings(log.settings, self._settings)
        self._schemas = self._schemas_of_rows()
        self._cluster = ClusterClient(options)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.reset()

    def append(self, report: Callable[[TableProgress], None], stop: Event) -> TableProgress:
        """Add all that the topics hold now, in commits of at most `max_rows`; nothing if it is in.

        `stop` ends it after a commit. Raises BrokerAway, DataLoss, TableHasNewerWriter,
        SettingsError, and CometError for errors of Spark.
        """
        with spark_errors_translated():
            return self._append(report, stop)

    def _append(self, report: Callable[[TableProgress], None], stop: Event) -> TableProgress:
        target = self._cluster.positions(self._log.archived.queues)
        progress = TableProgress(waiting=waiting(self._log.archived, target))
        has_begun, replans = False, 0
        while not stop.is_set():
            plan = plan_commit(
                self._log.archived,
                target,
                self._max_rows,
                fail_on_data_loss=self._fail_on_data_loss,
            )
            if not plan.ranges:
                break
            report(progress)
            if not has_begun:
                self._log.begin(self._settings, self._schemas)
                has_begun = True
            try:
                added = self._write(plan)
            except DataLoss as error:
                replans += 1
                if not self._may_be_skipped(error) or replans > _REPLANS_MAX:
                    raise
                _log.warning("%s; what is gone is left out, and the rest planned again", error)
                stop.wait(_REPLAN_PAUSE_S)
                target = self._cluster.positions(self._log.archived.queues)
                continue
            progress, replans = self._progress_after(progress, added, target), 0
            report(progress)
        return progress

    def _may_be_skipped(self, error: DataLoss) -> bool:
        """Whether a new plan leaves out what is gone, and the caller goes on without it."""
        return not self._fail_on_data_loss and isinstance(error, MessagesDeleted)

    def _progress_after(
        self, before: TableProgress, added: Sequence[ArchivedRanges], target: Positions
    ) -> TableProgress:
        return TableProgress(
            rows=before.rows + sum(one.rows - one.misfits for one in added),
            misfits=before.misfits + sum(one.misfits for one in added),
            commits=before.commits + 1,
            waiting=waiting(self._log.archived, target),
        )

    def _write(self, plan: PlannedCommit) -> list[ArchivedRanges]:
        """Write one commit and return what it added."""
        commit = self._log.new_commit()
        with spark_errors_translated(), exact_times(self._spark):
            shaped = self._rows.shaped(self._read(plan))
            dead = self._rows.misfits(shaped)
            if self._write_rows(shaped, commit):
                parquet_writer(dead).parquet(self._log.uri(DEAD, commit))
        files = self._log.written(commit)
        added = self._counted(plan, commit, {one.kind for one in files})
        archived = self._log.archived.extended(added, plan.ended_ms)
        self._log.commit(archived, files)
        return list(added.values())

    def _schemas_of_rows(self) -> dict[str, Any]:
        """The schemas of rows and misfits; what is wrong with them fails before any change."""
        frame = self._spark.createDataFrame([], columns.ddl(self._rows.source_columns))
        with spark_errors_translated():
            shaped = self._rows.shaped(frame)
            found = {ROWS: self._rows.rows(shaped).schema, DEAD: self._rows.misfits(shaped).schema}
        return {kind: json.loads(schema.json()) for kind, schema in found.items()}

    def _write_rows(self, shaped: DataFrame, commit: str) -> int:
        """Write the rows; return how many misfits there are, which is rarely more than none.

        So the misfits cost a second read only where there are some.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        if self._rows.may_misfit:
            count = f.count_if(f.col("reason").isNotNull())
            shaped = shaped.observe(seen, count.alias("misfits"))
        rows = self._rows.rows(shaped)
        by = self._rows.partition_columns(rows)
        parquet_writer(rows).partitionBy(*by).parquet(self._log.uri(ROWS, commit))
        return int(seen.get["misfits"]) if self._rows.may_misfit else 0

    def _read(self, plan: PlannedCommit) -> DataFrame:
        """Exactly the ranges of the plan; a queue that isn't among them isn't read."""
        begins = PlannedOffsets({one.queue: one.begin for one in plan.ranges}, plan.started_ms)
        ends = PlannedOffsets({one.queue: one.end for one in plan.ranges}, plan.ended_ms)
        tasks = max(1, min(_slots(self._spark), plan.messages // _TASK_ROWS_MIN))
        division = {"slots": str(tasks), "minPartitions": str(tasks)}
        return read_exactly(self._spark, {**division, **self._source}, begins, ends)

    def _counted(
        self, plan: PlannedCommit, commit: str, kinds: set[str]
    ) -> dict[MessageQueue, ArchivedRanges]:
        """Read back what was written and compare it with the plan; raises CometError."""
        rows = self._count(self._log.uri(ROWS, commit)) if ROWS in kinds else {}
        misfits = self._count(self._log.uri(DEAD, commit)) if DEAD in kinds else {}
        added = {}
        for queue, begin, end in plan.ranges:
            key = tuple(queue)
            good, bad = rows.pop(key, _NONE), misfits.pop(key, _NONE)
            count, wanted = good.rows + bad.rows, end - begin
            total = (begin + end - 1) * wanted // 2
            if not good.lies_in(begin, end) or not bad.lies_in(begin, end) or count > wanted:
                raise _wrong(f"queue {queue} has {count} rows for offsets {begin} to {end}")
            if count == wanted and good.offsets + bad.offsets != total:
                raise _wrong(f"queue {queue} has an offset of {begin} to {end} twice")
            if count < wanted:
                _log.warning(
                    "%d of the offsets %d to %d of queue %s have no readable message at their "
                    "broker: its log says why",
                    wanted - count, begin, end, queue,
                )  # fmt: skip
            added[queue] = ArchivedRanges(((begin, end),), count, bad.rows)
        if rows or misfits:
            raise _wrong(f"rows of queues that were not planned: {sorted({*rows, *misfits})[:3]}")
        return added

    def _count(self, uri: str) -> dict[tuple[Any, ...], _WrittenCount]:
        from pyspark.sql import functions as f

        offset = f.col("queue_offset")
        found = (
            self._spark.read.schema(columns.ddl(columns.PLACE))
            .parquet(uri)
            .groupBy("topic", "broker", "queue_id")
            .agg(f.count("*"), f.min(offset), f.max(offset), f.sum(offset.cast("decimal(38,0)")))
            .collect()
        )
        return {tuple(row[:3]): _WrittenCount(row[3], row[4], row[5], int(row[6])) for row in found}


@dataclass(frozen=True, slots=True)
class _WrittenCount:
    """What was written of one queue."""

    rows: int
    first: int
    last: int
    offsets: int
    """Their sum."""

    def lies_in(self, begin: int, end: int) -> bool:
        return not self.rows or begin <= self.first <= self.last < end


_NONE = _WrittenCount(0, 0, 0, 0)


def _slots(spark: SparkSession) -> int:
    """How many tasks run at once; where Spark Connect doesn't say, the source's default."""
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return source_options.default_slots()


def _check_settings(of_table: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for name, value in of_table.items():
        if name in given and not _are_same(name, given[name], value):
            raise SettingsError(
                f"the table was made with {name}={value!r}, and this run has {given[name]!r}: give "
                "the same, or another directory"
            )


def _are_same(name: str, given: Any, of_table: Any) -> bool:
    """Whether two values of a setting mean the same: topics may come in any order."""
    if name == "topics":
        given, of_table = (sorted(text.split(" ", 1)[1].split(", ")) for text in (given, of_table))
    return bool(given == of_table)


def _wrong(what: str) -> CometError:
    return CometError(f"Spark has not written what was read, and nothing was committed: {what}")
