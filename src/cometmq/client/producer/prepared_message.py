"""A message ready to be sent: its properties, its body as sent, and the requests that carry it.

Owns the translation of messages to SEND requests, and of the responses to results; refuses to know
which queue is used and how often. Invariant: a message gets its UNIQ_KEY once, so retries repeat
it.
Java: DefaultMQProducerImpl.sendKernelImpl, MQClientAPIImpl.processSendResponse
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.producer.message_checks import check_properties_size
from cometmq.errors import BrokerError
from cometmq.model.message import Property
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult, SendStatus
from cometmq.model.topic import DEFAULT_TOPIC, is_retry_topic
from cometmq.rules.namespace import with_namespace
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.compression import deflate
from cometmq.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from cometmq.wire.records import message_batch, properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.model.message import Message, MessageExt
    from cometmq.wire.command import Command

BATCH_ITEM_BYTES = 22
"""What a message takes in a batch besides its body and its properties."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_COMPRESSION = sysflag.COMPRESSED | sysflag.COMPRESSION_MASK
_SEND_STATUS_OF = {status.value: status for status in SendStatus}


class PreparedMessage(NamedTuple):
    """One message ready to be sent to any queue of its topic, as often as needed."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    msg_id: str
    born_ms: int
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    code: int = RequestCode.SEND_MESSAGE_V2


def properties_of(message: Message, uniq_key: str) -> dict[str, str]:
    """All properties of a message as they are sent."""
    pairs = dict(message.properties) if message.properties else {}
    if message.keys:
        pairs[Property.KEYS] = message.keys
    pairs[Property.UNIQ_KEY] = uniq_key
    pairs[Property.WAIT] = "true" if message.wait_store_ok else "false"
    if message.tags:
        pairs[Property.TAGS] = message.tags
    if message.sharding_key:
        pairs[Property.SHARDING_KEY] = message.sharding_key
    if message.delay_level > 0:
        pairs[Property.DELAY] = str(message.delay_level)
    if isinstance(message.due, datetime):
        pairs[Property.TIMER_DELIVER_MS] = str((message.due - _EPOCH) // _MS)
    elif message.due is not None:
        pairs[Property.TIMER_DELAY_MS] = str(message.due // _MS)
    return pairs


def prepare(
    message: Message,
    options: ProducerOptions,
    uniq_key: str,
    now_ms: int,
    extra: Mapping[str, str] | None = None,
) -> PreparedMessage:
    """Prepare one checked message: properties encoded, a large body compressed if that helps.

    `extra` are properties that only the client itself may set.
    """
    pairs = properties_of(message, uniq_key)
    if options.instance_id:
        pairs[Property.INSTANCE_ID] = options.instance_id
    if extra:
        pairs.update(extra)
    raw = properties.encode(pairs)
    check_properties_size(raw)
    body, sys_flag = _compressed(message.body, options)
    topic = with_namespace(options.instance_id, message.topic)
    return PreparedMessage(topic, body, sys_flag, message.flag, raw.decode(), uniq_key, now_ms)


def prepare_retry(
    group_topic: str,
    message: MessageExt,
    pairs: dict[str, str],
    options: ProducerOptions,
    now_ms: int,
) -> PreparedMessage:
    """Prepare a message for a retry topic; the counts of attempts move from pairs to the header.

    A body that could not be decompressed goes back as it came.
    """
    pairs = dict(pairs)
    times = int(pairs.pop(Property.RECONSUME_TIME, "0"))
    most = pairs.pop(Property.MAX_RECONSUME_TIMES, None)
    raw = properties.encode(pairs)
    check_properties_size(raw)
    body, sys_flag = message.body, message.sys_flag & _COMPRESSION
    if not sys_flag & sysflag.COMPRESSED:
        body, sys_flag = _compressed(body, options)
    return PreparedMessage(
        group_topic,
        body,
        sys_flag,
        message.flag,
        raw.decode(),
        pairs.get(Property.UNIQ_KEY, ""),
        now_ms,
        times,
        None if most is None else int(most),
    )


def _compressed(body: bytes, options: ProducerOptions) -> tuple[bytes, int]:
    """A large body, compressed where that makes it shorter, and the flag that says so."""
    if len(body) >= options.compress_over_bytes:
        return deflate(body, options.compression, options.compress_level)
    return body, 0


def send_request(
    message: PreparedMessage,
    group: str,
    queue: MessageQueue,
    default_queues: int,
    *,
    oneway: bool = False,
) -> Command:
    """The SEND_MESSAGE_V2 request that puts the message into the queue."""
    header = SendMessageRequestHeaderV2(
        producer_group=group,
        topic=message.topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=default_queues,
        queue_id=queue.queue_id,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_ms,
        flag=message.flag,
        properties=message.properties,
        reconsume_times=message.reconsume_times,
        unit_mode=False,
        max_reconsume_times=message.max_reconsume_times if is_retry_topic(message.topic) else None,
        batch=False,
        broker_name=queue.broker_name,
    )
    return request(message.code, 0, header, message.body, oneway=oneway)


def result_of(answer: Command, addr: str, queue: MessageQueue, msg_id: str) -> SendResult:
    """The result in the response to a send; raises BrokerError when nothing was stored."""
    status = _SEND_STATUS_OF.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, addr)
    header = SendMessageResponseHeader.decode(answer.ext)
    stored_in = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status,
        msg_id,
        stored_in,
        header.queue_offset,
        header.msg_id,
        header.transaction_id,
        header.msg_region or "DefaultRegion",
        header.trace_on is not False,
        header.recall_handle,
    )


class PreparedBatch:
    """Several messages of one topic for one queue, in one frame. Filled with `add`, then sent."""

    __slots__ = ("_body_bytes", "_bytes_max", "_items", "born_ms", "msg_ids", "topic")

    def __init__(self, topic: str, born_ms: int, bytes_max: float = inf) -> None:
        """`bytes_max`: the most bytes of a body with several messages."""
        self.topic = topic
        self.born_ms = born_ms
        self.msg_ids: list[str] = []
        self._bytes_max = bytes_max
        self._body_bytes = 0
        self._items: list[message_batch.BatchItem] = []

    def __len__(self) -> int:
        """Return how many messages it holds."""
        return len(self._items)

    def add(self, message: Message, uniq_key: str) -> bool:
        """Append a checked message; False: there is no room for it beside the others.

        Raises InvalidMessage when its properties are too long.
        """
        raw = properties.encode(properties_of(message, uniq_key))
        check_properties_size(raw)
        body_bytes = self._body_bytes + BATCH_ITEM_BYTES + len(message.body) + len(raw)
        if self._items and body_bytes > self._bytes_max:
            return False
        self._body_bytes = body_bytes
        self._items.append(message_batch.BatchItem(message.flag, message.body, raw))
        self.msg_ids.append(uniq_key)
        return True

    def body(self) -> bytes:
        """The body of the request."""
        return message_batch.encode(self._items)

    def own_properties(self) -> str:
        """The properties of the batch itself."""
        return _batch_properties(self.msg_ids[0])


class EncodedBatch(NamedTuple):
    """Several messages of one topic for one queue that their maker has encoded already."""

    topic: str
    born_ms: int
    first_id: str
    """The UNIQ_KEY of the first message."""
    items: bytes
    """As `message_batch` has them."""

    def body(self) -> bytes:
        """The body of the request."""
        return self.items

    def own_properties(self) -> str:
        """The properties of the batch itself."""
        return _batch_properties(self.first_id)


def batch_item_bytes(message: Message, msg_id: str) -> int:
    """The bytes that a message takes in a batch."""
    raw = properties.encode(properties_of(message, msg_id))
    return BATCH_ITEM_BYTES + len(message.body) + len(raw)


def _batch_properties(first_id: str) -> str:
    return properties.encode({Property.UNIQ_KEY: first_id, Property.WAIT: "true"}).decode()


def batch_request(
    sent: PreparedBatch | EncodedBatch, options: ProducerOptions, queue: MessageQueue
) -> Command:
    """The SEND_BATCH_MESSAGE request that puts the messages into the queue."""
    header = SendMessageRequestHeaderV2(
        producer_group=options.group,
        topic=with_namespace(options.instance_id, sent.topic),
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=options.default_topic_queues,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=sent.born_ms,
        flag=0,
        properties=sent.own_properties(),
        reconsume_times=0,
        unit_mode=False,
        batch=True,
        broker_name=queue.broker_name,
    )
    return request(RequestCode.SEND_BATCH_MESSAGE, 0, header, sent.body())


def batch_results_of(
    answer: Command, addr: str, queue: MessageQueue, msg_ids: Sequence[str]
) -> list[SendResult]:
    """One result for each message of a batch; raises BrokerError when nothing was stored."""
    whole = result_of(answer, addr, queue, "")
    ids = whole.offset_msg_id.split(",")
    if len(ids) != len(msg_ids):
        ids = [whole.offset_msg_id] * len(msg_ids)
    return [
        whole._replace(msg_id=msg_id, queue_offset=whole.queue_offset + at, offset_msg_id=ids[at])
        for at, msg_id in enumerate(msg_ids)
    ]
