"""The job `deadletters`: the dead letters of all groups in one table, each once.

Owns the columns of that table: who gave a message up, why, and where it came from, whatever client
wrote that. What is done with the table: SQL, and `redrive`.
Java: MessageConst (RETRY_TOPIC, ORIGIN_MESSAGE_ID), which its clients and brokers write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.message import Property
from cometmq.model.topic import DLQ_PREFIX
from cometmq.spark.tables.archive import ROWS_MAX, keep_table
from cometmq.spark.tables.group_topic_rows import GroupTopicRows

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

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
_ROWS = GroupTopicRows("dead letters", DLQ_PREFIX, _READ, _COLUMNS)


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
    return keep_table(
        spark,
        directory,
        _ROWS,
        _ROWS.source(groups, namesrv, options),
        max_rows=max_rows,
        fail_on_data_loss=fail_on_data_loss,
        compact=True,
        every_s=every_s,
        stop=stop,
        report=report,
    )
