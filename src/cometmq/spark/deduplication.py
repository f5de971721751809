"""Drops messages that the sink sent more than once, from what the source reads.

Owns what makes two messages one; the properties it reads are written by `sink/row_identity`.
Invariant: messages that differ, and messages that no sink wrote, are all kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.pyspark_version import require_pyspark
from cometmq.spark.sink.row_identity import ORIGIN, WRITE
from cometmq.spark.source.columns import PLACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = "_cometmq_row"
_NEEDED = (*PLACE, "properties")


def deduplicated(frame: DataFrame, within: str | None = None) -> DataFrame:
    """The rows of a read without those that a retried task or a replayed batch sent again.

    Two messages of a topic are one if they have the same origin and checksum, or, without an
    origin, the same query, batch, partition, row and checksum. The frame needs the columns topic,
    broker, queue_id, queue_offset and properties (`includeProperties=true`). A stream also needs
    `store_ts` and `within`, such as `"1 hour"`: how long after a message its repeat may be stored,
    which bounds what Spark remembers. Which of the repeats is kept is not defined. Raises
    SettingsError.
    """
    require_pyspark()
    needed = (*_NEEDED, "store_ts") if frame.isStreaming else _NEEDED
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise SettingsError(
            f"deduplicated needs the columns {', '.join(missing)}: read them as well (properties "
            "come with includeProperties=true)"
        )
    if frame.isStreaming != (within is not None):
        raise SettingsError(
            'deduplicated needs within=, such as "1 hour", for a stream, and takes none for a batch'
        )
    keyed = frame.withColumn(_KEY, _key())
    if within is not None:
        once = keyed.withWatermark("store_ts", within).dropDuplicatesWithinWatermark([_KEY])
    else:
        once = keyed.dropDuplicates([_KEY])
    return once.drop(_KEY)


def _key() -> Column:
    """The text that repeats share; of messages without the sink's properties, where they lie."""
    from pyspark.sql import functions as f

    write, origin = f.col(f"properties.{WRITE}"), f.col(f"properties.{ORIGIN}")
    checksum = f.substring_index(write, "/", -1)
    read = f.concat_ws("/", f.lit("read"), "topic", origin, checksum)
    made = f.concat_ws("/", f.lit("made"), "topic", write)
    place = f.concat_ws("/", f.lit("place"), *PLACE)
    return f.when(write.isNull(), place).when(origin.isNull(), made).otherwise(read)
