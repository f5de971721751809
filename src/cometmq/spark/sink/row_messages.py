"""Makes messages of Arrow batches: what a row says, and the properties that name the row.

Owns how columns are read; refuses to know brokers. Invariant: the messages of equal rows at the
same place of the same write are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from cometmq.model.message import RESERVED_PROPERTIES, Message
from cometmq.spark.sink.row_columns import ORIGIN_COLUMNS
from cometmq.spark.sink.row_identity import ORIGIN, WRITE, checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from cometmq.spark.sink.row_columns import RowColumns

_BYTES_MAX = 8 * 1024 * 1024
_CONTENT = ("keys", "tags", "properties", "sharding_key", "delay_level")


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Messages of consecutive rows; `first` is the number of the first row in its partition."""

    first: int
    messages: list[Message]
    queues: list[tuple[str | None, int | None]] | None
    """The broker and queue that each row asks for; None: no row does."""


class RowMessages:
    """Makes the messages of one task; `place` is `query/batch/partition`."""

    def __init__(self, columns: RowColumns, topic: str, place: str, rows_max: int) -> None:
        self._columns, self._topic = columns, topic
        self._place, self._rows_max = place, rows_max
        self._rows = 0
        names = columns.names
        self._content = tuple(name for name in _CONTENT if name in names)
        self._has_origins = columns.is_read or "origin" in names
        self._has_queues = "queue_id" in names and not columns.is_read

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RowChunk]:
        """Messages in chunks of at most `rows_max` rows and, by their mean, about 8 MiB."""
        for batch in batches:
            at = 0
            fitting = batch.num_rows * _BYTES_MAX // max(1, batch.nbytes)
            step = max(1, min(self._rows_max, fitting))
            while at < batch.num_rows:
                yield self._chunk(batch.slice(at, step))
                at += step

    def _chunk(self, batch: pa.RecordBatch) -> RowChunk:
        first, self._rows = self._rows, self._rows + batch.num_rows
        bodies, topics = _bodies(batch), self._topics(batch)
        if not self._content and not self._has_origins:  # measured: half the CPU of the general way
            start = f"{self._place}/"
            messages = [
                Message(topic, body, properties={WRITE: f"{start}{row}/{checksum(body, ())}"})
                for row, topic, body in zip(count(first), topics, bodies, strict=False)
            ]
            return RowChunk(first, messages, self._queues(batch))
        found = {name: batch.column(name).to_pylist() for name in self._content}
        others = list(zip(*found.values(), strict=True)) if found else repeat(())
        origins = self._origins(batch)
        messages = [
            self._message(first + at, topic, body, dict(zip(found, other, strict=True)), origin)
            for at, (topic, body, other, origin) in enumerate(
                zip(topics, bodies, others, origins, strict=False)
            )
        ]
        assert len(messages) == batch.num_rows, "every row becomes one message"
        return RowChunk(first, messages, self._queues(batch))

    def _message(
        self, row: int, topic: str, body: bytes, given: dict[str, Any], origin: str | None
    ) -> Message:
        number = f"{self._place}/{row}/{checksum(body, tuple(given.values()))}"
        if not given:
            named = {WRITE: number} if origin is None else {WRITE: number, ORIGIN: origin}
            return Message(topic, body, properties=named)
        named = self._user_properties(given.pop("properties", None))
        named[WRITE] = number
        if origin is not None:
            named[ORIGIN] = origin
        given["delay_level"] = given.get("delay_level") or 0
        return Message(topic, body, properties=named, **given)

    def _user_properties(self, pairs: list[tuple[str, str]] | None) -> dict[str, str]:
        """A row's map; rows as read have RocketMQ's own properties in it, which are left out."""
        found = dict(pairs or ())
        found.pop(WRITE, None)
        found.pop(ORIGIN, None)
        if self._has_origins:
            for name in RESERVED_PROPERTIES & found.keys():
                del found[name]
        return found

    def _topics(self, batch: pa.RecordBatch) -> Iterable[str]:
        if self._topic:
            return repeat(self._topic, batch.num_rows)
        topics: list[str] = batch.column("topic").to_pylist()
        return topics

    def _origins(self, batch: pa.RecordBatch) -> Iterable[str | None]:
        if self._columns.is_read:
            columns = [batch.column(name).to_pylist() for name in ORIGIN_COLUMNS]
        elif self._has_origins:
            columns = [one.to_pylist() for one in batch.column("origin").flatten()]
        else:
            return repeat(None)
        return [
            None if None in where else f"{where[0]}/{where[1]}/{where[2]}/{where[3]}"
            for where in zip(*columns, strict=True)
        ]

    def _queues(self, batch: pa.RecordBatch) -> list[tuple[str | None, int | None]] | None:
        if not self._has_queues:
            return None
        numbers = batch.column("queue_id").to_pylist()
        named = "broker" in self._columns.names
        brokers = batch.column("broker").to_pylist() if named else [None] * len(numbers)
        return list(zip(brokers, numbers, strict=True))


def _bodies(batch: pa.RecordBatch) -> list[bytes]:
    """The bodies as bytes; a text is written in UTF-8."""
    import pyarrow as pa

    bodies: list[bytes] = batch.column("body").cast(pa.binary()).to_pylist()
    return bodies
