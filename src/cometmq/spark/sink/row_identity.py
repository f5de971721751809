"""The properties that say which row of which write a message is, and where the row was read.

Owns their names and form, which `deduplicated` reads. Invariant: a row that is sent again by a task
that is retried, or a batch that is replayed, has the same texts if it is the same row; two rows
that differ never do, also where a replay meets rows in another order.
"""

from __future__ import annotations

WRITE = "SPARK_WRITE"
"""`query/batch/partition/row/checksum`; a batch write has an id of its own, and batch 0. The
checksum is CRC-32 of the body, and of the row's other properties as they are sent."""
ORIGIN = "SPARK_ORIGIN"
"""`topic/broker/queue/offset` of the message that the row was read from."""
