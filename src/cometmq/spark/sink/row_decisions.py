"""Decides what becomes of each row: which message, for which topic, key, queue and delay, or none.

Owns the rules that a row can break by itself, and the properties as they are sent; does not know
brokers, nor how messages are sent (`chunk_sender`). Invariant: equal rows at the same place of the
same write become equal messages. Columns stay columns: only the checksum
of a row, maps, lists of keys, sharding keys and delays take a step of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.client.producer import message_checks as checks
from cometmq.errors import InvalidMessage
from cometmq.model.message import RESERVED_PROPERTIES, Message, Property
from cometmq.spark.sink.row_columns import ORIGIN_COLUMNS
from cometmq.spark.sink.row_identity import ORIGIN, WRITE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from cometmq.spark.sink.row_columns import RowColumns

BODY_BYTES_MAX = 4 * 1024 * 1024
_CHUNK_BYTES = 8 * 1024 * 1024
_PROPERTIES_MAX = checks.PROPERTIES_BYTES_MAX - 128  # UNIQ_KEY and what a broker may add
_CONTENT = ("keys", "tags", "properties", "sharding_key", "delay_level")
_TEXTS = {
    "keys": Property.KEYS,
    "tags": Property.TAGS,
    "sharding_key": Property.SHARDING_KEY,
    "delay_level": Property.DELAY,
}


@dataclass(slots=True)
class RowChunk:
    """What consecutive rows of a partition become; a place counts rows from 0 in the chunk."""

    first: int
    """The number of the first row in its partition."""
    rows: pa.RecordBatch
    topics: Sequence[str]
    bodies: pa.BinaryArray
    properties: pa.BinaryArray
    """All but UNIQ_KEY, as a record has them."""
    sizes: list[int]
    """The bytes of body and properties of each row."""
    sharding_keys: list[str | None] | None
    delays: list[int | None] | None
    queues: list[tuple[str | None, int | None]] | None
    """The broker and queue that each row asks for; None: no row does."""
    refused: dict[int, str]
    """The places of rows that cannot be sent, and why."""


class RowDecisions:
    """Decides for the rows of one task; `task` is `query/batch/partition`."""

    def __init__(self, columns: RowColumns, topic: str, task: str, rows_max: int) -> None:
        self._columns, self._topic = columns, topic
        self._rows_max = rows_max
        self._rows = 0
        self._start = f"WAIT\x01true\x02{WRITE}\x01{task}/".encode()
        names = columns.names
        self._content = tuple(name for name in _CONTENT if name in names)
        self._has_origins = columns.is_read or "origin" in names
        self._has_queues = "queue_id" in names and not columns.is_read
        self._left_out = {WRITE, ORIGIN} | (RESERVED_PROPERTIES if self._has_origins else set())

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RowChunk]:
        """Decisions in chunks of at most `rows_max` rows and, by their mean, about 8 MiB."""
        for batch in batches:
            at = 0
            fitting = batch.num_rows * _CHUNK_BYTES // max(1, batch.nbytes)
            step = max(1, min(self._rows_max, fitting))
            while at < batch.num_rows:
                yield self._chunk(batch.slice(at, step))
                at += step

    def _chunk(self, batch: pa.RecordBatch) -> RowChunk:
        from cometmq.spark.sink import row_bytes

        first, self._rows = self._rows, self._rows + batch.num_rows
        topics, bodies = self._topics(batch), row_bytes.binary(batch.column("body"))
        given = _Content({name: batch.column(name) for name in self._content}, self._left_out)
        refused = {
            at: problem
            for at in sorted(_odd_places(topics, bodies, given))
            if (problem := _problem(topics[at], batch.column("body")[at].as_py(), at, given))
        }
        queues = self._queues(batch)
        for at, (broker, number) in enumerate(queues or ()):
            if number is None and broker is not None:
                refused[at] = f"the column broker says {broker}, and queue_id is null"
        properties = self._properties(first, bodies, given.texts(), self._origins(batch))
        property_sizes = row_bytes.sizes(properties)
        if property_sizes.max() > _PROPERTIES_MAX:
            _refuse_long_properties(refused, property_sizes.tolist())
        assert len(properties) == len(bodies) == batch.num_rows, "a message for each row"
        return RowChunk(
            first,
            batch,
            topics,
            bodies,
            properties,
            (row_bytes.sizes(bodies) + property_sizes).tolist(),
            given.values("sharding_key"),
            given.values("delay_level"),
            queues,
            refused,
        )

    def _properties(
        self,
        first: int,
        bodies: pa.BinaryArray,
        texts: pa.BinaryArray | None,
        origins: pa.BinaryArray | None,
    ) -> pa.BinaryArray:
        """The properties of each row, its number and checksum among them."""
        from cometmq.spark.sink import row_bytes

        numbers = row_bytes.numbers(first, len(bodies))
        pieces = [self._start, numbers, row_bytes.checksums(bodies, texts)]
        pieces = pieces if texts is None else [texts, *pieces]
        return row_bytes.joined(*pieces, *([] if origins is None else [origins]))

    def _topics(self, batch: pa.RecordBatch) -> Sequence[str]:
        if self._topic:
            return [self._topic] * batch.num_rows
        topics: list[str] = batch.column("topic").to_pylist()
        return topics

    def _origins(self, batch: pa.RecordBatch) -> pa.BinaryArray | None:
        from cometmq.spark.sink import row_bytes

        if self._columns.is_read:
            columns = [batch.column(name) for name in ORIGIN_COLUMNS]
        elif self._has_origins:
            columns = batch.column("origin").flatten()
        else:
            return None
        return row_bytes.path_of(ORIGIN, columns)

    def _queues(self, batch: pa.RecordBatch) -> list[tuple[str | None, int | None]] | None:
        if not self._has_queues:
            return None
        numbers = batch.column("queue_id").to_pylist()
        named = "broker" in self._columns.names
        brokers = batch.column("broker").to_pylist() if named else [None] * len(numbers)
        return list(zip(brokers, numbers, strict=True))


class _Content:
    """What rows say beside topic, body and place."""

    def __init__(self, columns: dict[str, pa.Array], left_out: Collection[str]) -> None:
        """Properties whose names are in `left_out` are left out."""
        from cometmq.spark.sink import row_bytes

        maps = columns.pop("properties", None)
        if "keys" in columns:
            columns["keys"] = row_bytes.words(columns["keys"])
        self._columns = columns
        self._maps = None if maps is None else row_bytes.MapTexts(maps, left_out)

    def texts(self) -> pa.BinaryArray | None:
        """The properties of each row that say this; None: no row has one."""
        from cometmq.spark.sink import row_bytes

        found = [row_bytes.named(_TEXTS[name], one) for name, one in self._columns.items()]
        if self._maps is not None:
            found.append(self._maps.texts())
        return row_bytes.joined(*found) if found else None

    def odd_places(self) -> Iterator[int]:
        """The places of rows that may break a rule."""
        from cometmq.spark.sink import row_bytes

        for name, column in self._columns.items():
            if name == "delay_level":
                yield from row_bytes.places_below(column, 0)
            else:
                yield from row_bytes.odd_places(column)
        if self._maps is not None:
            yield from self._maps.odd_rows(RESERVED_PROPERTIES)

    def values(self, name: str) -> list[Any] | None:
        """A whole column; None when there is none."""
        return self._columns[name].to_pylist() if name in self._columns else None

    def message(self, topic: str, body: bytes, at: int) -> Message:
        """The message of one row, before it is checked."""
        texts = {name: column[at].as_py() for name, column in self._columns.items()}
        texts["delay_level"] = texts.get("delay_level") or 0
        pairs = None if self._maps is None else self._maps.pairs(at)
        return Message(topic, body, properties=pairs, **texts)


def _odd_places(topics: Sequence[str], bodies: pa.BinaryArray, given: _Content) -> set[int]:
    """The places that must be looked at one by one: all whose message may break a rule."""
    from cometmq.spark.sink import row_bytes

    odd = set(given.odd_places())
    odd.update(row_bytes.places_outside(row_bytes.sizes(bodies), 1, BODY_BYTES_MAX))
    wrong = {topic for topic in set(topics) if _topic_problem(topic)}
    if wrong:
        odd.update(at for at, topic in enumerate(topics) if topic in wrong)
    return odd


def _topic_problem(topic: str) -> str | None:
    try:
        checks.check_topic(topic)
    except InvalidMessage as error:
        return str(error)
    return None


def _problem(topic: str, body: bytes | str | None, at: int, given: _Content) -> str | None:
    """What is wrong with one row, in the words of the client; None: nothing."""
    try:
        checks.check_topic(topic)
        if body is None:
            return f"the body of a message for {topic} is null"
        raw = body.encode() if isinstance(body, str) else body
        checks.check_message(given.message(topic, raw, at), BODY_BYTES_MAX)
    except InvalidMessage as error:
        return str(error)
    return None


def _refuse_long_properties(refused: dict[int, str], sizes: list[int]) -> None:
    for at, size in enumerate(sizes):
        if size > _PROPERTIES_MAX and at not in refused:
            refused[at] = (
                f"the properties take {size} bytes with those that say which row it is; the "
                f"limit is {_PROPERTIES_MAX}"
            )
