"""The job `order`: an audit of the order in which messages are stored, by offset and by key.

Looks at a topic at its brokers, at an archive, or at any frame with their columns; changes nothing.
Owns what is a fault and the sentences about it; `order_marks` finds the faults. Keeps no state:
each run reads everything anew (why: decision 030).
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from cometmq.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.source.columns import DDL_TYPES, PLACE
from cometmq.spark.tables import order_marks
from cometmq.spark.tables.archive import source_of
from cometmq.spark.tables.manifest import DEAD, ROWS
from cometmq.spark.tables.spark_failures import spark_errors_translated
from cometmq.spark.tables.stored_order import StoredOrder, key_order, queue_order
from cometmq.spark.tables.table_logs import table_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyspark.sql import Column, DataFrame, Row, SparkSession

KEY = "sharding_key"
"""The column by which messages keep their order, unless the caller names another one."""

EXAMPLES_MAX = 5
"""Sentences about each kind of fault at most."""

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")


def order_of_topics(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    namesrv: str | None = None,
    key: str = KEY,
    sequence: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StoredOrder:
    """Audit the order of all messages that brokers have of these topics now.

    - `topics`: one or several names. `namesrv` default: the environment's NAMESRV_ADDR.
    - `key`: messages of one value must lie in one queue of their topic. An expression of Spark's
      SQL over the columns of the source; default: the sharding key.
    - `sequence`: an expression over the same columns that numbers the messages of a key in the
      order in which they must lie: whole numbers, text of them, or times. Default: none, and
      nothing is said about the order inside a key.
    - `options` are those of `archive`.

    Messages are read once, and a second time where faults were found, for examples. Raises
    SettingsError for expressions that cannot be read, BrokerAway, DataLoss where retention deletes
    messages meanwhile, and CometError for errors of Spark.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    source = source_of({"subscribe": ",".join(names)}, namesrv, options)
    source["columns"] = ",".join(_columns_in(key, sequence or ""))
    with spark_errors_translated():
        rows = spark.read.format("rocketmq").options(**source).load()
        return order_of_rows(rows, key=key, sequence=sequence)


def order_of_archive(
    spark: SparkSession,
    directory: str | Path,
    *,
    key: str = KEY,
    sequence: str | None = None,
    iceberg: str | Catalog | None = None,
) -> StoredOrder:
    """Audit the order of what an archive holds, misfits included; see `order_of_topics`.

    Expressions are over the columns of the archive, `value.number` for a field of its schema.
    `iceberg` is as for `archive`. Raises CometError where there is no archive.
    """
    log = table_log(spark, directory, iceberg)
    with spark_errors_translated():
        rows, misfits = (log.frame(spark, kind) for kind in (ROWS, DEAD))
        both = rows.unionByName(misfits, allowMissingColumns=True)
        return order_of_rows(both, key=key, sequence=sequence)


def order_of_rows(rows: DataFrame, *, key: str = KEY, sequence: str | None = None) -> StoredOrder:
    """Audit the order of any rows that say their topic, broker, queue and offset.

    `key` and `sequence` are as in `order_of_topics`, over the columns of the frame, which is not a
    stream. Raises SettingsError where a column is missing or an expression cannot be read.
    """
    missing = [name for name in PLACE if name not in rows.columns]
    if missing:
        raise SettingsError(f"the order needs the columns {', '.join(missing)}: select them, too")
    number, is_time = _number(rows, sequence)
    with spark_errors_translated():
        marks = order_marks.marked(rows, _key(rows, key), number)
        found = sorted(order_marks.counts_by_queue(marks).collect(), key=lambda row: row[:3])
        queues = tuple(map(queue_order, found))
        keys = tuple(
            key_order(topic, list(each), has_numbers=sequence is not None, is_time=is_time)
            for topic, each in groupby(found, key=lambda row: row.topic)
        )
        order = StoredOrder(queues, keys)
        if order.is_in_order:
            return order
        return StoredOrder(queues, keys, tuple(_examples(rows, marks, order, is_time=is_time)))


def _columns_in(*texts: str) -> list[str]:
    """The columns of the source that these expressions may name, and those of the place."""
    named = {word.lower() for text in texts for word in re.findall(r"\w+", text)}
    return [name for name in DDL_TYPES if name in PLACE or name in named]


def _key(rows: DataFrame, text: str) -> Column:
    _type_of(rows, text, "key")
    from pyspark.sql import functions as f

    return f.expr(text).cast("string")


def _number(rows: DataFrame, text: str | None) -> tuple[Column, bool]:
    """The sequence as whole numbers, null where there is none; and whether they are times."""
    from pyspark.sql import functions as f

    if text is None:
        return f.lit(None).cast("bigint"), False
    kind, value = _type_of(rows, text, "sequence"), f.expr(text)
    if kind in _TIMES:
        return f.unix_micros(value.cast("timestamp")), True
    if kind == "string":
        return value.try_cast("bigint"), False
    if kind in _WHOLE_NUMBERS:
        return value.cast("bigint"), False
    raise SettingsError(
        f"the sequence {text!r} is of the type {kind}: it must be whole numbers, text of them, or "
        "times; write an expression that makes one of these"
    )


def _type_of(rows: DataFrame, text: str, what: str) -> str:
    from pyspark.sql import functions as f

    try:
        kind: str = rows.select(f.expr(text)).schema[0].dataType.simpleString()
    except PySparkException as error:
        first = str(error).strip().partition("\n")[0]
        raise SettingsError(
            f"the {what} {text!r} is no expression over the columns {', '.join(rows.columns)}: "
            f"{first}"
        ) from error
    return kind


def _examples(
    rows: DataFrame, marks: DataFrame, order: StoredOrder, *, is_time: bool
) -> Iterator[str]:
    """A few faults of each kind, the first ones by place."""
    from pyspark.sql import functions as f

    late = marks.where(order_marks.is_late())
    for name in ("number", "reached") if is_time else ():
        late = late.withColumn(name, f.timestamp_micros(name).cast("string"))
    steps = order_marks.out_of_step(rows)
    scattered = marks.where(order_marks.is_in_second_queue())
    kinds: tuple[tuple[int, DataFrame, Callable[[Row], str]], ...] = (
        (sum(one.holes for one in order.queues), steps.where("queue_offset > earlier"), _hole),
        (sum(one.repeats for one in order.queues), steps.where("queue_offset = earlier"), _repeat),
        (sum(one.scattered for one in order.keys), scattered, _scattered),
        (sum(one.late or 0 for one in order.keys), late, _late),
    )
    for count, frame, sentence in kinds:
        if count:
            yield from map(sentence, frame.orderBy(*PLACE).limit(EXAMPLES_MAX).collect())


def _hole(row: Row) -> str:
    return (
        f"the offsets {row.earlier + 1} to {row.queue_offset - 1} of queue {_queue(row)} are not "
        "there"
    )


def _repeat(row: Row) -> str:
    return f"the offset {row.queue_offset} of queue {_queue(row)} has more than one row"


def _scattered(row: Row) -> str:
    other = MessageQueue(row.topic, row.previous.broker, row.previous.queue_id)
    return f"messages of the key {row.key} lie in the queues {other} and {_queue(row)}"


def _late(row: Row) -> str:
    return (
        f"number {row.number} of the key {row.key} lies behind {row.reached}, at offset "
        f"{row.queue_offset} of queue {_queue(row)}"
    )


def _queue(row: Row) -> MessageQueue:
    return MessageQueue(row.topic, row.broker, row.queue_id)
