"""Sends dead letters to their topics again, repaired or as they are, in order.

Owns which row goes where and before which; the sink sends. Works on rows of the table that
`dead_letters` keeps, or on any frame with the same columns.
Invariant: messages of one sharding key are sent in the order in which they first lay in their
queue, as far as all of them say where that was; otherwise in the order in which they were given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.source.columns import DDL_TYPES, PLACE
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_MESSAGE = ("body", "tags", "keys", "sharding_key")
_NEEDED = (*_MESSAGE, *PLACE, "properties", "origin_topic", "origin_queue_id", "origin_offset")
_OWN = "map_filter(properties, (name, _) -> NOT startswith(name, 'DLQ_')) AS properties"
"""Without those that say why a message was given up."""


def redrive(
    letters: DataFrame,
    *,
    namesrv: str | None = None,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Send these dead letters again; return how many went to each topic.

    Each goes to its `origin_topic`, or all to `topic`, with body, tags, keys, sharding key and
    properties as the frame has them: repair them there, in SQL. The properties `DLQ_...` are left
    out. Messages of one sharding key keep their order. At least once: a call again, or a task that
    is retried, sends again, and what was sent for one letter is one message for `deduplicated`
    unless the letter was repaired in another way.

    - `options`: further ones of the sink, such as `retryForMs`.

    Raises SettingsError for a frame without a needed column or a letter without a topic to go to,
    before anything is sent; CometError for errors of Spark, `RowNotSent` among them.
    """
    _check_columns(letters)
    with spark_errors_translated():
        # Counted and sent from one read: what is sent is what was counted.
        chosen = letters.select(*_NEEDED).persist()
        try:
            counts = planned(chosen, topic=topic)
            if counts:
                where = {"namesrv": namesrv} if namesrv else {}
                writer = _in_order(chosen, topic).write.format("rocketmq").mode("append")
                writer.options(**where, **(options or {})).save()
        finally:
            chosen.unpersist()
    return counts


def planned(letters: DataFrame, *, topic: str | None = None) -> dict[str, int]:
    """How many letters `redrive` would send to each topic; it raises the same SettingsError."""
    from pyspark.sql import functions as f

    _check_columns(letters)
    to = f.lit(topic) if topic else f.col("origin_topic")
    with spark_errors_translated():
        found = letters.groupBy(to.alias("topic")).count().collect()
    counts = {row[0]: int(row[1]) for row in found}
    if None in counts:
        raise SettingsError(
            f"{counts[None]:,} of the dead letters don't say which topic they came from: name one "
            "topic for all, or leave those out (`origin_topic IS NOT NULL`)"
        )
    return counts


def _check_columns(letters: DataFrame) -> None:
    missing = [name for name in _NEEDED if name not in letters.columns]
    if missing:
        raise SettingsError(
            f"redrive needs the columns {', '.join(missing)}: select them from the table as well"
        )


def _in_order(letters: DataFrame, topic: str | None) -> DataFrame:
    """The rows for the sink: one task has all of a key, in their order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.struct(*[f.col(name).cast(DDL_TYPES[name]).alias(name) for name in PLACE])
    made = letters.select(
        (f.lit(topic) if topic else f.col("origin_topic")).alias("topic"),
        *_MESSAGE,
        f.expr(_OWN),
        place.alias("origin"),
        f.coalesce("sharding_key", f.concat_ws("/", *PLACE)).alias("_key"),
        f.struct("origin_queue_id", "origin_offset").alias("_first"),
        f.struct("broker", "queue_id", "queue_offset").alias("_given_up"),
    )
    of_key = Window.partitionBy("topic", "_key")
    knows = f.min(f.col("_first.origin_offset").isNotNull()).over(of_key)
    first = f.when(knows, f.col("_first"))
    ordered = made.withColumn("_first", first).sortWithinPartitions(
        "topic", "_key", "_first", "_given_up"
    )
    return ordered.drop("_key", "_first", "_given_up")
