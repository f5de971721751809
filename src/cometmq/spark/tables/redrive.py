"""Sends dead letters to their topics again, repaired or as they are, each once and in order.

Owns which row goes where and before which; the sink sends. Which letters are done, and that only
one operator sends them, is the matter of `Admin.redrive_dead_letters_by`. Works on rows of the
table that `dead_letters` keeps, or on any frame with the same columns.
Invariant: messages of one sharding key are sent in the order in which they first lay in their
queue, as far as all of them say where that was; otherwise in the order in which they were given up.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions

from cometmq.client.blocking.admin import Admin
from cometmq.errors import SettingsError
from cometmq.model.topic import DLQ_PREFIX
from cometmq.spark.sink.sink_options import parse
from cometmq.spark.source.columns import DDL_TYPES, PLACE
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

    from cometmq.client.admin.dead_letter_redrive import LetterPlace

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
    out. Messages of one sharding key keep their order, group by group.

    Each letter once: those that were sent again or dropped before, by whatever operator, are left
    out, and one operator at a time sends those of a group. That is known as long as the broker
    keeps records of the group's parking topic (its retention time). At least once where a call or
    a task of it fails: what was sent twice for one letter is one message for `deduplicated`,
    unless the letter was repaired in another way. The places of the letters come to the driver.

    - `options`: further ones of the sink, such as `retryForMs`. A row that goes to `rejectedPath`
      counts as sent.

    Raises SettingsError for a frame without a needed column or a letter without a topic to go to,
    before anything is sent; OperatorAtWork; CometError for errors of Spark, `RowNotSent` among
    them.
    """
    _check_columns(letters)
    given = {**({"namesrv": namesrv} if namesrv else {}), **(options or {})}
    wanted = parse(given)
    sent: Counter[str] = Counter()

    def send(chosen: DataFrame, left: Collection[LetterPlace]) -> None:
        with spark_errors_translated():
            rows = _rows_at(chosen, left)
            counts = planned(rows, topic=topic)
            writer = _in_order(rows, topic).write.format("rocketmq").mode("append")
            writer.options(**given).save()
        sent.update(counts)

    with spark_errors_translated():
        # Counted and sent from one read: what is sent is what was counted.
        everything = letters.select(*_NEEDED).persist()
        try:
            planned(everything, topic=topic)
            places = _places(everything)
            clients = wanted.security.client_settings()
            with Admin(namesrv=wanted.namesrv, **clients) as admin:
                for dlq, its in sorted(places.items()):
                    own = partial(send, everything.where(functions.col("topic") == dlq))
                    admin.redrive_dead_letters_by(dlq.removeprefix(DLQ_PREFIX), own, its)
        finally:
            everything.unpersist()
    return dict(sent)


def planned(letters: DataFrame, *, topic: str | None = None) -> dict[str, int]:
    """How many letters `redrive` would send to each topic; it raises the same SettingsError."""
    _check_columns(letters)
    to = functions.lit(topic) if topic else functions.col("origin_topic")
    with spark_errors_translated():
        found = letters.groupBy(to.alias("topic")).count().collect()
    counts = {row[0]: int(row[1]) for row in found}
    if None in counts:
        raise SettingsError(
            f"{counts[None]:,} of the dead letters don't say which topic they came from: name one "
            "topic for all, or leave those out (`origin_topic IS NOT NULL`)"
        )
    return counts


def _places(letters: DataFrame) -> dict[str, set[LetterPlace]]:
    """Where the letters of each dead-letter topic lie."""
    found: dict[str, set[LetterPlace]] = {}
    for topic, broker, queue_id, offset in letters.select(*PLACE).collect():
        if not topic.startswith(DLQ_PREFIX):
            raise SettingsError(
                f"{topic} is no dead-letter topic: redrive sends rows of the table of dead letters"
            )
        found.setdefault(topic, set()).add((broker, queue_id, offset))
    return found


def _rows_at(letters: DataFrame, places: Collection[LetterPlace]) -> DataFrame:
    """The rows of one dead-letter topic at these places."""
    names = PLACE[1:]
    ddl = ", ".join(f"{name} {DDL_TYPES[name]}" for name in names)
    wanted = letters.sparkSession.createDataFrame(list(places), ddl)
    return letters.join(wanted, [*names], "left_semi")


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
