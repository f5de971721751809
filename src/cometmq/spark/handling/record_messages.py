"""Messages of the records that the source has read, as a push consumer would hand them out.

Owns how rows of stored records become messages; the decoding is the client's own, so a handler
sees on Spark what it sees in a push consumer. Invariant: the messages of a queue come in the order
of its rows, and each row is one message.
Java: MessageDecoder.decodesBatch, DefaultMQPushConsumerImpl.resetRetryAndNamespace
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from cometmq.client.consumer.message_decoder import decode_messages, restore_topics
from cometmq.errors import ProtocolError
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cometmq.model.message import MessageExt

COLUMNS = ("broker", "record")
"""What is read of the source."""
_DECODED_MAX = 512
"""Records that are messages at the same time before the first of them is handed on."""


def queue_runs(
    batch: pa.RecordBatch, inflated_bytes_max: int
) -> Iterator[tuple[MessageQueue, list[MessageExt], bool]]:
    """Runs of messages of one queue; also, whether one of them is unreadable.

    Messages of a retry topic have the topic they were first sent to, their queue is the one they
    were read from. Raises ProtocolError for bytes that are no record.
    """
    for at in range(0, batch.num_rows, _DECODED_MAX):
        part = batch.slice(at, _DECODED_MAX)
        rows = zip(
            part.column("broker").to_pylist(), part.column("record").to_pylist(), strict=True
        )
        for broker, own in groupby(rows, itemgetter(0)):
            for messages in _decoded([record for _, record in own], broker, inflated_bytes_max):
                yield from _by_queue(messages, broker)


def _by_queue(
    messages: list[MessageExt], broker: str
) -> Iterator[tuple[MessageQueue, list[MessageExt], bool]]:
    for (topic, queue_id), run in groupby(messages, attrgetter("topic", "queue_id")):
        found = list(run)
        if is_retry_topic(topic):
            restore_topics(found)
        has_unreadable = any(message.unreadable for message in found)
        yield MessageQueue(topic, broker, queue_id), found, has_unreadable


def _decoded(
    records: list[bytes], broker: str, inflated_bytes_max: int
) -> Iterator[list[MessageExt]]:
    """All messages; as many at a time as may be inflated together."""
    done = 0
    while done < len(records):
        found = decode_messages(b"".join(records[done:]), broker, inflated_bytes_max).messages
        if not found:
            raise ProtocolError(f"the source has read bytes of {broker} that are no record")
        done += len(found)
        yield found
    assert done == len(records), "each row is one message"
