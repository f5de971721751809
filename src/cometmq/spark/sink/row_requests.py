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
from cometmq.wire.records import message_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cometmq.model.queue import MessageQueue
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


def encoded(chunk: RowChunk, request: RowRequest, ids: Sequence[str], born_ms: int) -> EncodedBatch:
    """The request as a batch; `ids` are the unique keys of its messages."""
    bodies, others = chunk.bodies, chunk.properties
    items = message_batch.encode_keyed(
        ids, [bodies[at] for at in request.places], [others[at] for at in request.places]
    )
    return EncodedBatch(request.topic, born_ms, ids[0], items)


def alone(chunk: RowChunk, request: RowRequest, msg_id: str, born_ms: int) -> PreparedMessage:
    """The one message of a request."""
    (at,) = request.places
    properties = f"UNIQ_KEY\x01{msg_id}\x02{chunk.properties[at].decode()}"
    return PreparedMessage(request.topic, chunk.bodies[at], 0, 0, properties, msg_id, born_ms)


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
    bodies, properties, delays = chunk.bodies, chunk.properties, chunk.delays
    if topic.startswith(RETRY_PREFIX) or len(topic) > _BATCH_TOPIC_MAX:
        yield from ([at] for at in places)
        return
    if delays is None:
        longest = max(map(len, bodies)) + max(map(len, properties)) + _ITEM_BYTES
        if longest * BATCH_MESSAGES_MAX <= FRAME_BYTES_MAX:  # measured: 0.1 us a row less
            for begin in range(0, len(places), BATCH_MESSAGES_MAX):
                yield places[begin : begin + BATCH_MESSAGES_MAX]
            return
    begin, size = 0, 0
    for index, at in enumerate(places):
        own = len(bodies[at]) + len(properties[at]) + _ITEM_BYTES
        is_alone = delays is not None and bool(delays[at])
        is_full = size + own > FRAME_BYTES_MAX or index - begin >= BATCH_MESSAGES_MAX
        if index > begin and (is_alone or is_full):
            yield places[begin:index]
            begin, size = index, 0
        size += own if not is_alone else FRAME_BYTES_MAX  # so that the next one begins a request
    if begin < len(places):
        yield places[begin:]
