"""Marks every message with what is wrong about its place, and counts the marks by queue.

The part of the job `order` that runs inside Spark: one read, one shuffle by key, then within a key
one sort by place and one by number. `order` says what the counts mean.
Invariant: memory grows neither with the number of keys nor with the messages of one, for Spark
sorts on disk what is too large; only counts by queue reach the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.spark.source.columns import PLACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_QUEUE = PLACE[:3]
_OF_KEY = ("topic", "key", "lone")
"""What belongs together: the messages of a key in a topic, and a message without a key alone."""

_WORD_BITS = 6
_BIT_OF_OFFSET = f"shiftleft(1L, cast(queue_offset & {(1 << _WORD_BITS) - 1} AS int))"
_FARTHEST = (1 << 63) - 1


def marked(rows: DataFrame, key: Column, number: Column) -> DataFrame:
    """The place, key and number of every row, and what came before it.

    By place: `previous`, the queue before it among those of its key, and `nth`, how many queues of
    its key there are up to its own; `reached`, the highest number before it in its key and queue.
    By number: `before`, the next lower number of its key, or the same where it had that before.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.when(f.col("key").isNull(), f.struct(*PLACE[1:]))
    placed = rows.select(*PLACE, key.alias("key"), number.alias("number")).withColumn("lone", place)
    of_key = Window.partitionBy(*_OF_KEY)
    by_place = of_key.orderBy(*PLACE[1:])
    in_queue = Window.partitionBy(*_OF_KEY, "broker", "queue_id").orderBy("queue_offset")
    earlier = in_queue.rowsBetween(Window.unboundedPreceding, -1)
    # In this order: each window finds rows as the one before it left them, but for the last.
    return (
        placed.withColumn("previous", f.lag(f.struct("broker", "queue_id")).over(by_place))
        .withColumn("reached", f.max("number").over(earlier))
        .withColumn("nth", f.dense_rank().over(of_key.orderBy("broker", "queue_id")))
        .withColumn("before", f.lag("number").over(of_key.orderBy("number", *PLACE[1:])))
    )


def counts_by_queue(marks: DataFrame) -> DataFrame:
    """A row for each queue: its offsets, and how often each mark occurs in it.

    What is said of keys is counted where a key begins, so that sums over queues count it once.
    Offsets are counted in words of 64, a bit each, so that none is counted twice.
    """
    from pyspark.sql import functions as f

    offset, has_key, number = f.col("queue_offset"), f.col("key").isNotNull(), f.col("number")
    is_numbered = has_key & number.isNotNull()
    marks_of = {
        "without_key": ~has_key,
        "keys": has_key & f.col("previous").isNull(),
        "scattered": is_in_second_queue(),
        "numbered": is_numbered,
        "unnumbered": has_key & number.isNull(),
        "resent": is_numbered & (number == f.col("before")),
        "late": is_late(),
    }
    beyond = f.coalesce(f.try_subtract(number, f.col("before")), f.lit(_FARTHEST)).cast("double")
    left_out = f.when(is_numbered & (number > f.col("before")), beyond - 1)
    words = marks.groupBy(*_QUEUE, f.shiftright(offset, _WORD_BITS).alias("word")).agg(
        f.count("*").alias("rows"),
        f.bit_or(f.expr(_BIT_OF_OFFSET)).alias("bits"),
        f.min(offset).alias("first"),
        f.max(offset).alias("last"),
        f.sum(left_out).alias("left_out"),
        *(f.count_if(mark).alias(name) for name, mark in marks_of.items()),
    )
    return words.groupBy(*_QUEUE).agg(
        f.sum("rows").alias("rows"),
        f.sum(f.bit_count("bits")).alias("offsets"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.coalesce(f.sum("left_out"), f.lit(0.0)).alias("left_out"),
        *(f.sum(name).alias(name) for name in marks_of),
    )


def is_in_second_queue() -> Column:
    """Whether a row is the first of its key in the second queue that has the key."""
    from pyspark.sql import functions as f

    previous = f.col("previous")
    changes = (previous["broker"] != f.col("broker")) | (previous["queue_id"] != f.col("queue_id"))
    return f.col("key").isNotNull() & (f.col("nth") == 2) & changes


def is_late() -> Column:
    """Whether a higher number of the key lies before a row in its queue, and not the same one."""
    from pyspark.sql import functions as f

    number, before = f.col("number"), f.col("before")
    is_new = before.isNull() | (before < number)
    return f.col("key").isNotNull() & is_new & (number < f.col("reached"))


def out_of_step(rows: DataFrame) -> DataFrame:
    """The rows whose offset is not the one after that of the row before: `earlier` is that."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    in_queue = Window.partitionBy(*_QUEUE).orderBy("queue_offset")
    steps = rows.select(*PLACE).withColumn("earlier", f.lag("queue_offset").over(in_queue))
    return steps.where("queue_offset <> earlier + 1")
