"""What the audit of the order found: counts by queue and by topic, and sentences.

Pure values; `order` finds them.
Invariant: what is a fault is a count of its own, and nothing else is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """The offsets of one queue. Numbers are messages unless they say otherwise."""

    topic: str
    broker: str
    queue_id: int
    begin: int
    """First offset that is there."""
    end: int
    """The offset after the last one."""
    rows: int
    holes: int
    """Offsets between them that no row has."""
    repeats: int
    """Rows of an offset that another row has."""
    without_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """The keys of one topic. Without a sequence the numbers are None."""

    topic: str
    keys: int
    """Different keys."""
    scattered: int
    """Keys whose messages lie in more than one queue."""
    numbered: int | None = None
    """Messages with a key and a number."""
    unnumbered: int | None = None
    """Messages with a key and without a number."""
    late: int | None = None
    """Messages behind one of a higher number, of the same key in the same queue."""
    resent: int | None = None
    """Messages whose number their key has had before; no fault, for sending is at least once."""
    left_out: int | None = None
    """Numbers between the lowest and the highest of a key that no message has.

    No fault, for a sequence need not be dense; None for times. Exact up to 2**53."""

    @property
    def different(self) -> int:
        """Messages with a number that their key had not had before."""
        return (self.numbered or 0) - (self.resent or 0)


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """What the audit found."""

    queues: tuple[QueueOrder, ...]
    keys: tuple[KeyOrder, ...]
    """One for each topic."""
    examples: tuple[str, ...] = ()
    """A few faults of each kind, as sentences."""

    @property
    def faults(self) -> int:
        """Holes, repeats, scattered keys and late messages together."""
        of_queues = sum(one.holes + one.repeats for one in self.queues)
        return of_queues + sum(one.scattered + (one.late or 0) for one in self.keys)

    @property
    def is_in_order(self) -> bool:
        """Whether there is no fault, as far as the data shows."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "is_in_order": self.is_in_order,
            "queues": [asdict(one) for one in self.queues],
            "keys": [asdict(one) for one in self.keys],
            "examples": list(self.examples),
        }


def queue_order(row: Row) -> QueueOrder:
    """The order of the queue that a row of `order_marks.counts_by_queue` is about."""
    begin, end = row["first"], row["last"] + 1
    return QueueOrder(
        topic=row["topic"],
        broker=row["broker"],
        queue_id=row["queue_id"],
        begin=begin,
        end=end,
        rows=row["rows"],
        holes=end - begin - row["offsets"],
        repeats=row["rows"] - row["offsets"],
        without_key=row["without_key"],
    )


def key_order(topic: str, found: Sequence[Row], *, has_numbers: bool, is_time: bool) -> KeyOrder:
    """The keys of a topic, from the rows about all of its queues."""

    def total(name: str) -> int:
        return int(sum(row[name] for row in found))

    keys, scattered = total("keys"), total("scattered")
    if not has_numbers:
        return KeyOrder(topic=topic, keys=keys, scattered=scattered)
    return KeyOrder(
        topic=topic,
        keys=keys,
        scattered=scattered,
        numbered=total("numbered"),
        unnumbered=total("unnumbered"),
        late=total("late"),
        resent=total("resent"),
        left_out=None if is_time else total("left_out"),
    )
