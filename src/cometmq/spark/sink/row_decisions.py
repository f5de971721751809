"""Decides what becomes of each row: which message, for which topic, key, queue and delay, or none.

Owns the rules that a row can break by itself, and the properties as they are sent; does not know
brokers, nor how messages are sent (`chunk_sender`). Invariant: equal rows at the same place of the
same write become equal messages. Columns are read as wholes, without an object for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

from cometmq.client.producer import message_checks as checks
from cometmq.errors import InvalidMessage
from cometmq.model.message import RESERVED_PROPERTIES, Message, Property
from cometmq.spark.sink.row_columns import ORIGIN_COLUMNS
from cometmq.spark.sink.row_identity import ORIGIN, WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    bodies: list[bytes]
    properties: list[bytes]
    """All but UNIQ_KEY, as a record has them."""
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
        first, self._rows = self._rows, self._rows + batch.num_rows
        topics, bodies = self._topics(batch), _bodies(batch)
        given = {name: batch.column(name).to_pylist() for name in self._content}
        if "keys" in given:
            given["keys"] = [_joined(value) for value in given["keys"]]
        pairs = self._user_pairs(given.get("properties"))
        chunk = RowChunk(
            first,
            batch,
            topics,
            [body or b"" for body in bodies],
            [],
            given.get("sharding_key"),
            given.get("delay_level"),
            self._queues(batch),
            {},
        )
        odd = _odd_places(topics, chunk.bodies, given, pairs)
        for at in sorted(odd):
            problem = _problem(topics[at], bodies[at], at, given, pairs)
            if problem:
                chunk.refused[at] = problem
        for at, (broker, number) in enumerate(chunk.queues or ()):
            if number is None and broker is not None:
                chunk.refused[at] = f"the column broker says {broker}, and queue_id is null"
        chunk.properties = self._properties(chunk, given, pairs, self._origins(batch))
        if max(map(len, chunk.properties)) > _PROPERTIES_MAX:
            _refuse_long_properties(chunk)
        assert len(chunk.properties) == len(chunk.bodies) == batch.num_rows, (
            "a message for each row"
        )
        return chunk

    def _properties(
        self,
        chunk: RowChunk,
        given: dict[str, list[Any]],
        pairs: list[dict[str, str]] | None,
        origins: Iterable[bytes],
    ) -> list[bytes]:
        """Encode the properties of each row, its number and checksum among them."""
        columns: list[list[str]] = [
            [f"{_TEXTS[name]}\x01{value}\x02" if value else "" for value in values]
            for name, values in given.items()
            if name in _TEXTS
        ]
        if pairs is not None:
            columns.append(
                [
                    "".join([f"{key}\x01{one[key]}\x02" for key in one]) if one else ""
                    for one in pairs
                ]
            )
        bodies, numbers, start = chunk.bodies, count(chunk.first), self._start
        if not columns and not self._has_origins:  # measured: a third less than the general form
            form = start.replace(b"%", b"%%") + b"%d/%08x\x02"
            return [form % pair for pair in zip(numbers, map(crc32, bodies), strict=False)]
        if not columns:
            return [
                b"%b%d/%08x\x02%b" % (start, number, crc32(body), origin)
                for number, body, origin in zip(numbers, bodies, origins, strict=False)
            ]
        texts = [text.encode() for text in map("".join, zip(*columns, strict=True))]
        return [
            b"%b%b%d/%08x\x02%b" % (text, start, number, crc32(text, crc32(body)), origin)
            for text, number, body, origin in zip(texts, numbers, bodies, origins, strict=False)
        ]

    def _user_pairs(self, maps: list[Any] | None) -> list[dict[str, str]] | None:
        """The rows' maps; those of rows as read hold RocketMQ's own, which are left out."""
        if maps is None:
            return None
        left_out = {WRITE, ORIGIN} | (RESERVED_PROPERTIES if self._has_origins else set())
        return [
            {key: value for key, value in pairs if key not in left_out} if pairs else {}
            for pairs in maps
        ]

    def _topics(self, batch: pa.RecordBatch) -> Sequence[str]:
        if self._topic:
            return [self._topic] * batch.num_rows
        topics: list[str] = batch.column("topic").to_pylist()
        return topics

    def _origins(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        if self._columns.is_read:
            columns = [batch.column(name).to_pylist() for name in ORIGIN_COLUMNS]
        elif self._has_origins:
            columns = [one.to_pylist() for one in batch.column("origin").flatten()]
        else:
            return repeat(b"", batch.num_rows)
        return [
            b""
            if None in where
            else f"{ORIGIN}\x01{where[0]}/{where[1]}/{where[2]}/{where[3]}\x02".encode()
            for where in zip(*columns, strict=True)
        ]

    def _queues(self, batch: pa.RecordBatch) -> list[tuple[str | None, int | None]] | None:
        if not self._has_queues:
            return None
        numbers = batch.column("queue_id").to_pylist()
        named = "broker" in self._columns.names
        brokers = batch.column("broker").to_pylist() if named else [None] * len(numbers)
        return list(zip(brokers, numbers, strict=True))


def _bodies(batch: pa.RecordBatch) -> list[bytes | None]:
    """The bodies as bytes; a text is in UTF-8.

    Measured: 0.03 us a row with every version of pyarrow, where `to_pylist` took 0.8 before 26.
    """
    import pyarrow as pa

    column = batch.column("body").cast(pa.binary())
    bodies: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return bodies


def _joined(keys: str | list[str | None] | None) -> str | None:
    """One text of the keys; nulls among them are left out."""
    if keys is None or isinstance(keys, str):
        return keys
    return " ".join([key for key in keys if key]) or None


def _odd_places(
    topics: Sequence[str],
    bodies: list[bytes],
    given: dict[str, list[Any]],
    pairs: list[dict[str, str]] | None,
) -> set[int]:
    """The places that must be looked at one by one: all whose message may break a rule."""
    odd: set[int] = set()
    if not all(bodies) or max(map(len, bodies)) > BODY_BYTES_MAX:
        odd.update(at for at, body in enumerate(bodies) if not 0 < len(body) <= BODY_BYTES_MAX)
    wrong = {topic for topic in set(topics) if _topic_problem(topic)}
    if wrong:
        odd.update(at for at, topic in enumerate(topics) if topic in wrong)
    for name in ("keys", "tags", "sharding_key"):
        odd.update(
            at
            for at, text in enumerate(given.get(name, ()))
            if text is not None and (not text or text.isspace() or "\x01" in text or "\x02" in text)
        )
    odd.update(at for at, level in enumerate(given.get("delay_level", ())) if (level or 0) < 0)
    for at, one in enumerate(pairs or ()):
        if one and not _are_plain(one):
            odd.add(at)
    return odd


def _are_plain(pairs: dict[str, str]) -> bool:
    """Whether the pairs need no closer look."""
    if None in pairs.values() or not RESERVED_PROPERTIES.isdisjoint(pairs):
        return False
    texts = [*pairs, *pairs.values()]
    whole = "".join(texts)
    return "\x01" not in whole and "\x02" not in whole and all(map(str.strip, texts))


def _topic_problem(topic: str) -> str | None:
    try:
        checks.check_topic(topic)
    except InvalidMessage as error:
        return str(error)
    return None


def _problem(
    topic: str,
    body: bytes | None,
    at: int,
    given: dict[str, list[Any]],
    pairs: list[dict[str, str]] | None,
) -> str | None:
    """What is wrong with one row, in the words of the client; None: nothing."""
    try:
        checks.check_topic(topic)
        if body is None:
            return f"the body of a message for {topic} is null"
        texts = {name: values[at] for name, values in given.items() if name in _TEXTS}
        texts["delay_level"] = texts.get("delay_level") or 0
        message = Message(topic, body, properties=pairs[at] if pairs else None, **texts)
        checks.check_message(message, BODY_BYTES_MAX)
    except InvalidMessage as error:
        return str(error)
    return None


def _refuse_long_properties(chunk: RowChunk) -> None:
    for at, raw in enumerate(chunk.properties):
        if len(raw) > _PROPERTIES_MAX and at not in chunk.refused:
            chunk.refused[at] = (
                f"the properties take {len(raw)} bytes with those that say which row it is; the "
                f"limit is {_PROPERTIES_MAX}"
            )
