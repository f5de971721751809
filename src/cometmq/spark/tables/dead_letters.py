"""The job `deadletters`: the dead letters of all groups in one table, each once.

Owns the columns of that table: who gave a message up, why, and where it came from, whatever client
wrote that. What is done with the table: SQL, and `redrive`.
Java: MessageConst (RETRY_TOPIC, ORIGIN_MESSAGE_ID), which its clients and brokers write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.model.message import Property
from cometmq.model.topic import DLQ_PREFIX
from cometmq.spark.tables.archive import ROWS_MAX, keep_table, source_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.archive import ArchiveResult
    from cometmq.spark.tables.table_appender import TableProgress

_READ = (
    "topic", "broker", "queue_id", "queue_offset", "msg_id", "keys", "tags", "sharding_key", "body",
    "properties", "born_ts", "store_ts", "reconsume_times",
)  # fmt: skip
_P = Property
_COLUMNS = (
    f"substring(topic, {len(DLQ_PREFIX) + 1}) AS group",
    "topic", "broker", "queue_id", "queue_offset", "msg_id", "keys", "tags", "sharding_key", "body",
    "properties", "born_ts", "store_ts",
    f"properties['{_P.DLQ_REASON}'] AS reason",
    f"coalesce(try_cast(properties['{_P.DLQ_ATTEMPTS}'] AS int), reconsume_times) AS attempts",
    f"timestamp_millis(try_cast(properties['{_P.DLQ_FAILED_AT}'] AS bigint)) AS failed_at",
    f"coalesce(properties['{_P.DLQ_ORIGIN_TOPIC}'], properties['{_P.RETRY_TOPIC}'])"
    " AS origin_topic",
    f"try_cast(properties['{_P.DLQ_ORIGIN_QUEUE_ID}'] AS int) AS origin_queue_id",
    f"try_cast(properties['{_P.DLQ_ORIGIN_OFFSET}'] AS bigint) AS origin_offset",
    f"coalesce(properties['{_P.DLQ_ORIGIN_MESSAGE_ID}'], properties['{_P.ORIGIN_MESSAGE_ID}'])"
    " AS origin_message_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetterRows:
    """What the table has of each dead letter."""

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run."""
        return {"table": "dead letters"}

    @property
    def source_columns(self) -> tuple[str, ...]:
        """What must be read."""
        return _READ

    @property
    def may_misfit(self) -> bool:
        """Every dead letter is a row, whoever wrote it."""
        return False

    def shaped(self, frame: DataFrame) -> DataFrame:
        """The columns of the table."""
        return frame.selectExpr(*_COLUMNS)

    def rows(self, shaped: DataFrame) -> DataFrame:
        """All of them."""
        return shaped

    def partition_columns(self, rows: DataFrame) -> list[str]:
        """None: there are few dead letters, or something else is wrong."""
        del rows
        return []

    def misfits(self, shaped: DataFrame) -> DataFrame:
        """There are none."""
        return shaped.where("false")


def dead_letters(
    spark: SparkSession,
    directory: str | Path,
    *,
    groups: Sequence[str] | None = None,
    namesrv: str | None = None,
    max_rows: int = ROWS_MAX,
    fail_on_data_loss: bool = True,
    every_s: float | None = None,
    stop: threading.Event | None = None,
    report: Callable[[TableProgress], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> ArchiveResult:
    """Append the dead letters of all groups to one table in `directory`; each once.

    Dead-letter topics are found by their names, new ones at each run. Read the table with
    `read_archive`; columns that its writer left out are null. A run goes on where the last commit
    ended.

    - `groups`: only these consumer groups; default all. `namesrv` default: NAMESRV_ADDR.
    - The others are those of `archive`, and so are the errors. Without any dead letter yet nothing
      is written, and that is no error.
    """
    names = "|".join(map(re.escape, groups)) if groups else ".*"
    source = source_of({"subscribePattern": f"{DLQ_PREFIX}({names})"}, namesrv, options)
    source["failOnMissingTopic"] = "false"
    return keep_table(
        spark,
        directory,
        DeadLetterRows(),
        source,
        max_rows=max_rows,
        fail_on_data_loss=fail_on_data_loss,
        compact=True,
        every_s=every_s,
        stop=stop,
        report=report,
    )
