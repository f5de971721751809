"""Divides the rows of a chunk into requests, and requests into runs whose order must be kept.

Owns which rows travel together; does not know connections. Invariants: a row that is not refused is
in one request; rows of one sharding key, or for one given queue, are in one run, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.producer.plain_batch import BATCH_MESSAGES_MAX
from cometmq.client.producer.prepared_message import BATCH_ITEM_BYTES, EncodedBatch, PreparedMessage
from cometmq.client.producer.send_fast_path import FRAME_BYTES_MAX
from cometmq.errors import ClientError
from cometmq.model.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.sink.row_bytes import RowItems
    from cometmq.spark.sink.row_decisions import RowChunk

    IndexOfKey = Callable[[str, int], int]
    """Which of so many queues a sharding key has."""

_ITEM_BYTES = BATCH_ITEM_BYTES + 64
"""What a row takes beside its body and its properties, the UNIQ_KEY among it."""
_BATCH_TOPIC_MAX = 127
"""RocketMQ takes batches for no longer topic."""


class RowRequest(NamedTuple):
    """Rows that travel in one request, by their places in the chunk; one may be sent alone."""

    topic: str
    queue: MessageQueue | None
    """None: any queue of the topic."""
    places: Sequence[int]

    def halves(self) -> tuple[RowRequest, RowRequest]:
        """The same rows in two requests."""
        middle = len(self.places) // 2
        assert middle, "a single row cannot be divided"
        return (
            self._replace(places=self.places[:middle]),
            self._replace(places=self.places[middle:]),
        )


def runs_of(
    chunk: RowChunk, queues: Mapping[str, Sequence[MessageQueue]], index_of: IndexOfKey
) -> list[list[RowRequest]]:
    """The requests of each run, to be sent one after another; rows without order have a run each.

    A row whose queue does not exist joins the refused ones. `queues` are those of every topic.
    """
    groups = _groups(chunk, queues, index_of)
    runs: list[list[RowRequest]] = []
    for (topic, queue), places in groups.items():
        requests = [RowRequest(topic, queue, part) for part in _parts(chunk, topic, places)]
        runs += [requests] if queue is not None else [[request] for request in requests]
    return runs


class EncodedRows:
    """The rows of a chunk as items of batches, made at once: a third of the time by requests."""

    def __init__(
        self, chunk: RowChunk, runs: Iterable[Iterable[RowRequest]], keys_of: Callable[[int], bytes]
    ) -> None:
        """`keys_of` makes so many unique keys of one length, end to end."""
        self.chunk = chunk
        places = [one.places for run in runs for one in run]
        self._order: Sequence[int] = range(len(chunk.bodies))
        self._index_of: Mapping[int, int] | Sequence[int] = self._order
        if not all(isinstance(some, range) for some in places):
            self._order = [place for some in places for place in some]
            self._index_of = {place: index for index, place in enumerate(self._order)}
        self._keys = keys_of(len(self._order)) if self._order else b""
        self._key_bytes = len(self._keys) // max(len(self._order), 1)
        self._items: RowItems | None = None

    def batch(self, request: RowRequest, born_ms: int) -> EncodedBatch:
        """A request of several rows."""
        if self._items is None:
            self._items = self._encoded()
        begin = self._index_of[request.places[0]]
        data = self._items.between(begin, begin + len(request.places))
        return EncodedBatch(request.topic, born_ms, self._key(begin), data)

    def alone(self, request: RowRequest, born_ms: int) -> PreparedMessage:
        """A request of one row."""
        (at,) = request.places
        chunk, key = self.chunk, self._key(self._index_of[at])
        properties = f"UNIQ_KEY\x01{key}\x02{chunk.properties[at].as_py().decode()}"
        body = chunk.bodies[at].as_py()
        return PreparedMessage(request.topic, body, 0, 0, properties, key, born_ms)

    def _key(self, index: int) -> str:
        return self._keys[index * self._key_bytes : (index + 1) * self._key_bytes].decode()

    def _encoded(self) -> RowItems:
        from cometmq.spark.sink.row_bytes import RowItems

        return RowItems(self._keys, self.chunk.bodies, self.chunk.properties, self._order)


def _groups(
    chunk: RowChunk, queues: Mapping[str, Sequence[MessageQueue]], index_of: IndexOfKey
) -> Mapping[tuple[str, MessageQueue | None], Sequence[int]]:
    """The places of rows by topic and, where it is fixed, by queue."""
    topics, keys, asked = chunk.topics, chunk.sharding_keys, chunk.queues
    if keys is None and asked is None and not chunk.refused and len(set(topics)) == 1:
        return {(topics[0], None): range(len(topics))}
    groups: dict[tuple[str, MessageQueue | None], list[int]] = {}
    for at, topic in enumerate(topics):
        if at in chunk.refused:
            continue
        queue, key = None, keys[at] if keys is not None else None
        broker, number = asked[at] if asked is not None else (None, None)
        if number is not None:
            try:
                queue = _queue(queues[topic], broker, number)
            except ClientError as error:
                chunk.refused[at] = str(error)
                continue
        elif key is not None:
            of_topic = queues[topic]
            queue = of_topic[index_of(key, len(of_topic))]
        groups.setdefault((topic, queue), []).append(at)
    return groups


def _queue(queues: Sequence[MessageQueue], broker: str | None, number: int) -> MessageQueue:
    found = [
        queue
        for queue in queues
        if queue.queue_id == number and broker in (None, queue.broker_name)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ClientError(f"no broker{f' {broker}' if broker else ''} has a queue {number}")
    names = ", ".join(queue.broker_name for queue in found)
    raise ClientError(f"{names} have a queue {number} each: a column broker must say whose")


def _parts(chunk: RowChunk, topic: str, places: Sequence[int]) -> Iterable[Sequence[int]]:
    """The places of each request: bounded in messages and bytes; delayed messages travel alone."""
    sizes, delays = chunk.sizes, chunk.delays
    if topic.startswith(RETRY_PREFIX) or len(topic) > _BATCH_TOPIC_MAX:
        yield from ([at] for at in places)
        return
    if delays is None and (max(sizes) + _ITEM_BYTES) * BATCH_MESSAGES_MAX <= FRAME_BYTES_MAX:
        for begin in range(0, len(places), BATCH_MESSAGES_MAX):
            yield places[begin : begin + BATCH_MESSAGES_MAX]
        return
    begin, size = 0, 0
    for index, at in enumerate(places):
        own = sizes[at] + _ITEM_BYTES
        is_alone = delays is not None and bool(delays[at])
        is_full = size + own > FRAME_BYTES_MAX or index - begin >= BATCH_MESSAGES_MAX
        if index > begin and (is_alone or is_full):
            yield places[begin:index]
            begin, size = index, 0
        size += own if not is_alone else FRAME_BYTES_MAX  # so that the next one begins a request
    if begin < len(places):
        yield places[begin:]
