"""Compares an archive with its brokers, queue by queue.

What the manifest says is held against the data files (each offset once, none missing) and against
the brokers (nothing beyond their ends; what retention has deleted since; what waits). With bodies,
everything that the brokers still have is read again and compared by checksum.
Changes nothing. A job that commits meanwhile does not disturb it: it looks at one manifest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from cometmq.errors import CometError
from cometmq.model.queue import MessageQueue
from cometmq.spark.source import source_options
from cometmq.spark.source.cluster_client import ClusterClient
from cometmq.spark.source.columns import PLACE
from cometmq.spark.source.planned_offsets import PlannedOffsets
from cometmq.spark.source.recreated_queues import recreated_queues
from cometmq.spark.tables.archive import source_of
from cometmq.spark.tables.archive_rows import CHECKSUM
from cometmq.spark.tables.exact_reads import read_exactly
from cometmq.spark.tables.manifest import DEAD, ROWS
from cometmq.spark.tables.spark_failures import spark_errors_translated
from cometmq.spark.tables.table_logs import table_log

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession

    from cometmq.model.admin_stats import TopicOffset
    from cometmq.spark.tables.archived_ranges import ArchivedRanges
    from cometmq.spark.tables.iceberg_log import IcebergLog
    from cometmq.spark.tables.manifest_log import ManifestLog

    AnyLog = ManifestLog | IcebergLog


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAudit:
    """What was found about one queue. Numbers are messages unless they say otherwise."""

    topic: str
    broker: str
    queue_id: int
    begin: int
    """First offset archived."""
    end: int
    """The offset after the last one archived."""
    rows: int
    """Rows in the data files, misfits included."""
    misfits: int
    holes: int
    """Lost to retention before they were archived, and left out on purpose."""
    unreadable: int
    """Offsets for which the broker had no readable message when they were archived."""
    missing: int
    """Rows that the manifest counts and the data files lack, or strangers in place of them."""
    repeats: int
    """Rows of an offset that has another row."""
    removed: int
    """Archived messages that the broker has no more: retention."""
    waiting: int
    """Messages at the broker that are not archived yet."""
    compared: int | None = None
    """Messages whose body was compared with the broker's; None without bodies."""
    different: int = 0
    """Of those, with another body, or only on one side."""
    problem: str = ""
    """A sentence, when the broker's queue is not the one that was archived."""

    @property
    def is_exact(self) -> bool:
        """Whether the table holds each archived message once, as the broker has it."""
        return not (self.missing or self.repeats or self.different or self.problem)


@dataclass(frozen=True, slots=True)
class ArchiveAudit:
    """What `verify_archive` found."""

    queues: tuple[QueueAudit, ...]
    version: int
    """Of the manifest that was looked at."""
    missing_files: tuple[str, ...] = ()
    """Files that the manifest names and the directory lacks; their rows are `missing`."""

    @property
    def is_exact(self) -> bool:
        """Whether every queue is."""
        return not self.missing_files and all(one.is_exact for one in self.queues)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        queues = [{**asdict(one), "is_exact": one.is_exact} for one in self.queues]
        return {
            "is_exact": self.is_exact,
            "version": self.version,
            "missing_files": list(self.missing_files),
            "queues": queues,
        }


def verify_archive(
    spark: SparkSession,
    directory: str | Path,
    *,
    namesrv: str | None = None,
    bodies: bool = False,
    iceberg: str | Catalog | None = None,
    options: Mapping[str, str] | None = None,
) -> ArchiveAudit:
    """Compare an archive with its brokers, queue by queue.

    Reads the places of all rows in the table, and asks brokers for the ends of queues. With
    `bodies` it reads all that brokers still have of what is archived, and compares checksums.
    `iceberg` is as for `archive`.
    Raises CometError where there is no archive, BrokerAway for brokers that cannot be asked.
    """
    log = table_log(spark, directory, iceberg)
    archived = log.archived.queues
    if not archived:  # or its first run has not come to a commit
        raise CometError(f"there is no archive in {log.place}")
    topics = ",".join(sorted({queue.topic for queue in archived}))
    source = source_of({"subscribe": topics}, namesrv, options)
    cluster = ClusterClient(source_options.parse({**source, "failOnMissingTopic": "false"}))
    try:
        positions = cluster.positions(archived)
        planned = PlannedOffsets(
            {queue: one.end for queue, one in archived.items()}, log.archived.last_store_ms
        )
        anew = recreated_queues(cluster, planned, positions)
    finally:
        cluster.reset()
    gone = log.missing_files()
    with spark_errors_translated():
        found = _found(spark, log, gone)
        audits = {
            queue: _audit(queue, one, found.get(queue, (0, 0, 0)), positions.get(queue))
            for queue, one in sorted(archived.items())
        }
        for queue, sentence in anew.items():
            audits[queue] = replace(audits[queue], problem=sentence)
        strangers = sorted(set(found) - set(archived))
        if strangers:
            raise CometError(f"the data files hold rows of queues never archived: {strangers[:3]}")
        if bodies:
            audits |= _with_bodies(spark, log, gone, source, audits, positions)
    return ArchiveAudit(tuple(audits.values()), log.version, gone)


def _found(
    spark: SparkSession, log: AnyLog, gone: Collection[str]
) -> dict[MessageQueue, tuple[int, int, int]]:
    """By queue: rows, different offsets, and rows outside of what the manifest says."""
    from pyspark.sql import functions as f

    ranges = spark.createDataFrame(
        [
            (*queue, begin, end)
            for queue, one in log.archived.queues.items()
            for begin, end in one.ranges
        ],
        "topic string, broker string, queue_id int, begin bigint, end bigint",
    )
    placed = _places(spark, log, gone).groupBy(*PLACE).agg(f.count("*").alias("rows"))
    inside = placed.join(f.broadcast(ranges), ["topic", "broker", "queue_id"], "left").withColumn(
        "inside", f.col("queue_offset").between(f.col("begin"), f.col("end") - 1)
    )
    by_offset = inside.groupBy(*PLACE).agg(
        f.first("rows").alias("rows"), f.max("inside").alias("inside")
    )
    table = by_offset.groupBy("topic", "broker", "queue_id").agg(
        f.sum("rows"),
        f.count("*"),
        f.count_if(~f.coalesce("inside", f.lit(False))),
    )
    return {
        MessageQueue(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in table.collect()
    }


def _places(spark: SparkSession, log: AnyLog, gone: Collection[str], *more: str) -> DataFrame:
    """Topic, broker, queue and offset of every row and misfit, but for those in files `gone`."""
    both: DataFrame | None = None
    for kind in (ROWS, DEAD):
        frame = log.frame(spark, kind, gone).select(*PLACE, *more)
        both = frame if both is None else both.unionByName(frame)
    assert both is not None
    return both


def _audit(
    queue: MessageQueue, one: ArchivedRanges, found: tuple[int, int, int], at: TopicOffset | None
) -> QueueAudit:
    rows, offsets, outside = found
    problem, removed, waits = "", 0, 0
    if at is None:
        problem = f"no broker has the queue {queue} any more"
    elif at.max_offset < one.end:
        problem = (
            f"queue {queue} ends at {at.max_offset}, but was archived up to {one.end}: the topic "
            "was deleted and made anew, or its broker lost messages"
        )
    else:
        removed = sum(max(0, min(end, at.min_offset) - begin) for begin, end in one.ranges)
        waits = at.max_offset - max(one.end, at.min_offset)
    return QueueAudit(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        begin=one.begin,
        end=one.end,
        rows=rows,
        misfits=one.misfits,
        holes=sum(end - begin for begin, end in one.holes),
        unreadable=one.offsets - one.rows,
        missing=abs(one.rows - offsets) + outside,
        repeats=rows - offsets,
        removed=removed,
        waiting=waits,
        problem=problem,
    )


def _with_bodies(
    spark: SparkSession,
    log: AnyLog,
    gone: Collection[str],
    source: Mapping[str, str],
    audits: Mapping[MessageQueue, QueueAudit],
    positions: Mapping[MessageQueue, TopicOffset],
) -> dict[MessageQueue, QueueAudit]:
    """The audits with what a comparison of all bodies finds, of queues that are those archived."""
    from pyspark.sql import functions as f

    begins = {
        queue: max(one.begin, positions[queue].min_offset)
        for queue, one in audits.items()
        if not one.problem and positions[queue].min_offset < one.end
    }
    ends = {queue: audits[queue].end for queue in begins}
    if not begins:
        return {queue: replace(one, compared=0) for queue, one in audits.items()}
    columns = {"columns": ",".join((*PLACE, "body"))}
    read = read_exactly(spark, {**source, **columns}, PlannedOffsets(begins), PlannedOffsets(ends))
    at_broker = read.select(*PLACE, f.crc32("body").alias("theirs"), f.lit(True).alias("there"))
    starts = spark.createDataFrame(
        [(*queue, begin) for queue, begin in begins.items()],
        "topic string, broker string, queue_id int, since bigint",
    )
    ours = (
        _places(spark, log, gone, CHECKSUM)
        .join(f.broadcast(starts), ["topic", "broker", "queue_id"])
        .where("queue_offset >= since")
        .select(*PLACE, f.col(CHECKSUM).alias("ours"), f.lit(True).alias("here"))
    )
    both = ours.join(at_broker, list(PLACE), "full")
    equal = f.col("here") & f.col("there") & f.col("ours").eqNullSafe(f.col("theirs"))
    in_hole = f.lit(False)
    for queue in begins:
        for begin, end in log.archived.queues[queue].holes:
            place = (f.col("topic") == queue.topic) & (f.col("broker") == queue.broker_name)
            place &= f.col("queue_id") == queue.queue_id
            in_hole |= place & f.col("queue_offset").between(begin, end - 1)
    table = (
        both.where(~in_hole)
        .groupBy("topic", "broker", "queue_id")
        .agg(f.count("*"), f.count_if(~f.coalesce(equal, f.lit(False))))
    )
    compared = {MessageQueue(*row[:3]): row[3:5] for row in table.collect()}
    return {
        queue: replace(one, compared=count, different=different)
        for queue, one in audits.items()
        for count, different in [compared.get(queue, (0, 0))]
    }
