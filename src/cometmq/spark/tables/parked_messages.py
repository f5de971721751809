"""The job `parked`: the parking topics of all groups in one table, and what became of each message.

Owns the columns of both: the table has the records as they came, each once; `read_parked` folds
them, a row for each message that was parked. Which records count, and what they mean, is decided by
`rules.failures.parked_history`. What is done with the rows: SQL, and `send_back`.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.client.parking.parking_log import PARKED
from cometmq.model.message import Property
from cometmq.model.parking import PARK_PREFIX, RECORD_PROPERTY
from cometmq.rules.failures.parked_history import ParkedHistory
from cometmq.rules.failures.parked_keys import StoredFacts
from cometmq.spark.tables.archive import ROWS_MAX, keep_table
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.group_topic_rows import GroupTopicRows
from cometmq.spark.tables.spark_failures import spark_errors_translated
from cometmq.wire.bodies.parking import decode_parking_record

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.archive import ArchiveResult
    from cometmq.spark.tables.table_appender import TableProgress

_READ = (
    "topic", "broker", "queue_id", "queue_offset", "msg_id", "keys", "tags", "sharding_key", "body",
    "properties", "born_ts", "store_ts",
)  # fmt: skip
_P = Property
_RECORDS = (
    f"substring(topic, {len(PARK_PREFIX) + 1}) AS group",
    *_READ,
    f"properties['{RECORD_PROPERTY}'] AS record",
)
_FACTS = (
    "group", "topic", "broker", "queue_offset", "record",
    "unix_millis(store_ts) AS stored_ms",
    f"coalesce(properties['{_P.DLQ_ORIGIN_MESSAGE_ID}'], msg_id) AS msg_id",
    f"properties['{_P.DLQ_REASON}'] AS reason",
    f"coalesce(try_cast(properties['{_P.DLQ_ATTEMPTS}'] AS int), 0) AS attempts",
)  # fmt: skip
_STATES = {
    "group": "string", "topic": "string", "broker": "string", "position": "bigint",
    "state": "string", "command": "string", "origin_topic": "string", "origin_queue_id": "int",
    "origin_offset": "bigint", "key": "string", "origin_message_id": "string", "reason": "string",
    "attempts": "int", "has_failed": "boolean", "parked_ms": "bigint", "left_ms": "bigint",
    "sent_to": "string", "repaired_at": "bigint",
}  # fmt: skip
"""What the fold says of a message, with the types of Spark."""
_MESSAGE = (
    "keys", "tags", "sharding_key",
    f"map_filter(properties, (name, _) -> name <> '{RECORD_PROPERTY}'"
    " AND NOT startswith(name, 'DLQ_')) AS properties",
    "body AS parked_body", "born_ts",
)  # fmt: skip
_SHOWN = (
    "group", "key", "state", "command", "reason", "attempts", "has_failed",
    "timestamp_millis(parked_ms) AS parked_at", "timestamp_millis(left_ms) AS left_at", "sent_to",
    "origin_topic", "origin_queue_id", "origin_offset", "origin_message_id",
    "keys", "tags", "sharding_key", "coalesce(repaired_body, parked_body) AS body",
    "repaired_at >= 0 AS is_repaired", "properties", "born_ts", "broker", "position",
)  # fmt: skip
_ROWS = GroupTopicRows("parked messages", PARK_PREFIX, _READ, _RECORDS)


def parked_messages(
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
    """Append what the parking topics of all groups say to one table in `directory`; each once.

    Parking topics are found by their names, new ones at each run. Read the table with
    `read_parked`. A run goes on where the last commit ended.

    - `groups`: only these consumer groups; default all. `namesrv` default: NAMESRV_ADDR.
    - The others are those of `archive`, and so are the errors. Without any parked key yet nothing
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


def read_parked(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The messages that were parked, a row each, as far as the table in `directory` has records.

    `state` is parked, released, redriven, dead_letter, dropped, or done where the record of its
    command is gone; `command` is what a parked one's key follows now; `body` is that of the newest
    repair. `broker` and `position` name the record. One task folds the records of one parking
    queue, without their bodies. Raises CometError where there is no table.
    """
    records = read_archive(spark, directory).where(f"queue_id = {PARKED}")
    with spark_errors_translated():
        facts = records.selectExpr(*_FACTS)
        ddl = ", ".join(f"{name} {kind}" for name, kind in _STATES.items())
        states = facts.groupBy("topic", "broker").applyInArrow(_folded, ddl)
        place = ("topic", "broker", "queue_offset AS position")
        messages = records.selectExpr(*place, *_MESSAGE)
        place = ("topic", "broker", "queue_offset AS repaired_at")
        repairs = records.selectExpr(*place, "body AS repaired_body")
        joined = states.join(messages, ["topic", "broker", "position"]).join(
            repairs, ["topic", "broker", "repaired_at"], "left"
        )
        return joined.selectExpr(*_SHOWN)


def _folded(records: pa.Table) -> pa.Table:
    """What became of the messages of one parking queue."""
    import pyarrow as pa

    history = ParkedHistory()
    where: dict[str, Any] = {}
    for row in records.sort_by("queue_offset").to_pylist():
        where = where or {name: row[name] for name in ("group", "topic", "broker")}
        record = decode_parking_record(row["record"] or "")
        if record is not None:
            facts = StoredFacts(
                stored_ms=row["stored_ms"],
                msg_id=row["msg_id"] or "",
                reason=row["reason"] or "",
                attempts=row["attempts"],
            )
            history.apply(row["queue_offset"], record, facts)
    rows = [{**where, **each} for each in _entries(history)]
    kinds = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _STATES.items()])
    return pa.Table.from_pylist(rows, schema=schema)


def _entries(history: ParkedHistory) -> list[dict[str, Any]]:
    """The columns of each message that its records say."""
    return [
        {
            "position": one.message.position,
            "state": one.state.value,
            "command": one.message.command or None,
            "origin_topic": one.message.topic,
            "origin_queue_id": one.message.queue_id,
            "origin_offset": one.message.offset,
            "key": one.message.key,
            "origin_message_id": one.message.msg_id,
            "reason": one.message.reason,
            "attempts": one.message.attempts,
            "has_failed": one.message.has_failed,
            "parked_ms": one.message.parked_ms,
            "left_ms": one.left_ms or None,
            "sent_to": one.to or None,
            "repaired_at": one.message.repaired_at,
        }
        for one in history.entries()
    ]
