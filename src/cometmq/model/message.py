"""Messages as users meet them: `Message` to send, `MessageExt` as received, and the property names.

Owns the nouns and how properties read; refuses to know validation, encoding of frames and queues.
Invariant: a `MessageExt` keeps its properties as the stored bytes and parses them once, on demand.
So it does with what is seldom asked for: where and when it was born and stored. Whoever makes many
of them (`wire/records/log_record_batch_decoder`) sets the slots itself.
Layout of the bytes: key 0x01 value 0x02, repeated; the last 0x02 may be missing.
Java: org.apache.rocketmq.common.message.{Message, MessageExt, MessageConst}
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from cometmq.errors import InvalidMessage
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta


class Property:
    """Names of the properties with a meaning of their own (Java: MessageConst)."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    TRAN_MSG = "TRAN_MSG"
    PGROUP = "PGROUP"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    UNIQ_KEY = "UNIQ_KEY"
    MSG_REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    CLUSTER = "CLUSTER"
    INSTANCE_ID = "INSTANCE_ID"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    MSG_TYPE = "MSG_TYPE"
    SHARDING_KEY = "__SHARDINGKEY"
    DLQ_REASON = "DLQ_REASON"
    DLQ_ATTEMPTS = "DLQ_ATTEMPTS"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_QUEUE_ID = "DLQ_ORIGIN_QUEUE_ID"
    DLQ_ORIGIN_OFFSET = "DLQ_ORIGIN_OFFSET"
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
    DLQ_FAILED_AT = "DLQ_FAILED_AT"
    DLQ_DIVERTED = "DLQ_DIVERTED"


RESERVED_PROPERTIES = frozenset(
    {
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "EXTEND_UNIQ_INFO",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "INNER_MULTI_QUEUE_OFFSET",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "DLQ_REASON",
        "DLQ_ATTEMPTS",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_QUEUE_ID",
        "DLQ_ORIGIN_OFFSET",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_FAILED_AT",
        "DLQ_DIVERTED",
        "PARK_RECORD",
        "PARK_COPY",
        "__SHARDINGKEY",
        "__CRC32#",
    }
)
"""Names that a user's own property may not take."""


class Message:
    """One message to send.

    `tags` is a single tag, `keys` a list of keys, or a text with one or, parted by blanks, several
    (looked up later by the index), `properties` the user's own name/value pairs. `sharding_key`
    keeps messages of equal key in one queue and in order. `delay_level` > 0 holds the message back
    (level 1 is 1 s with the default table); `deliver_at`, a datetime with a time zone, or
    `deliver_after` says when it comes, to about a second (timerPrecisionMs) and three days ahead at
    most (timerMaxDelaySec).
    Nothing but `keys` is checked here: the producer checks at sending and raises `InvalidMessage`.
    """

    __slots__ = (
        "body", "delay_level", "due", "flag", "keys", "properties", "sharding_key", "tags", "topic",
        "wait_store_ok",
    )  # fmt: skip

    due: datetime | timedelta | None
    """`deliver_at` or `deliver_after`, whichever was given."""

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        deliver_after: timedelta | None = None,
        flag: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        if deliver_at is not None and deliver_after is not None:
            raise InvalidMessage("a message comes deliver_at a time or deliver_after one, not both")
        self.due = deliver_after if deliver_at is None else deliver_at
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = keys if keys is None or isinstance(keys, str) else _joined(keys)
        self.properties = properties
        self.sharding_key = sharding_key
        self.delay_level = delay_level
        self.flag = flag
        self.wait_store_ok = wait_store_ok

    def __repr__(self) -> str:
        """Return one line for logs."""
        return f"Message({self.topic!r}, {len(self.body)} bytes, tags={self.tags!r})"


_split_where = Struct(">qiq8sq8s").unpack


def _seldom(at: int) -> Any:
    """A field of a `MessageExt` that lies in the bytes of `where` until one of them is asked for.

    The bytes: phy_offset i64, sys_flag i32, born_ms i64, born_host 8, store_ms i64, store_host 8.
    """

    def get(message: MessageExt) -> Any:
        return _fields(message)[at]

    def put(message: MessageExt, value: Any) -> None:
        _fields(message)[at] = value

    return property(get, put)


def _fields(message: MessageExt) -> list[Any]:
    where = message.where
    if isinstance(where, bytes):
        where = message.where = list(_split_where(where))
    return where


class MessageExt:
    """One message as received: what was sent, and where and when the broker put it.

    `topic` is the topic the message was first sent to, also when it came back by way of a retry
    topic. `reconsume_times` counts the failures so far. Times are epoch milliseconds. `born_host`
    and `store_host` are packed: 4 or 16 bytes of address, then the port as int32. `where` and
    `parsed` are not for users: what stands behind the fields.
    """

    __slots__ = (
        "body", "broker_name", "flag", "parsed", "prepared_offset", "queue_id", "queue_offset",
        "raw_properties", "reconsume_times", "topic", "where",
    )  # fmt: skip

    unreadable = ""
    """Why the body is not what was sent; empty where it is. See `UnreadableMessage`."""
    is_damaged = False
    """Whether it is not what its checksum says: a copy would get another and look whole."""
    phy_offset: int = _seldom(0)
    sys_flag: int = _seldom(1)
    born_ms: int = _seldom(2)
    born_host: bytes = _seldom(3)
    store_ms: int = _seldom(4)
    store_host: bytes = _seldom(5)

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        body: bytes,
        raw_properties: bytes,
        reconsume_times: int,
        flag: int,
        sys_flag: int,
        phy_offset: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        store_host: bytes,
        prepared_offset: int,
        broker_name: str,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.body = body
        self.raw_properties = raw_properties
        self.reconsume_times = reconsume_times
        self.flag = flag
        self.prepared_offset = prepared_offset
        self.broker_name = broker_name
        self.where: bytes | list[Any] = [
            phy_offset, sys_flag, born_ms, born_host, store_ms, store_host
        ]  # fmt: skip
        self.parsed: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the reserved ones included."""
        if self.parsed is None:
            self.parsed = _parsed(self.raw_properties)
        return self.parsed

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return _value(self, Property.TAGS, b"TAGS\x01")

    @property
    def keys(self) -> list[str]:
        """The keys, in the order they were given."""
        return (_value(self, Property.KEYS, b"KEYS\x01") or "").split()

    @property
    def sharding_key(self) -> str | None:
        """The key that chose the queue, or None."""
        return _value(self, Property.SHARDING_KEY, b"__SHARDINGKEY\x01")

    @property
    def msg_id(self) -> str:
        """The id the producer gave the message; it stays the same over retries."""
        return _value(self, Property.UNIQ_KEY, b"UNIQ_KEY\x01") or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id made of the broker's address and the place in its log."""
        return f"{self.store_host.hex().upper()}{self.phy_offset:016X}"

    @property
    def message_queue(self) -> MessageQueue:
        """The queue the message was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    def __repr__(self) -> str:
        """Return one line for logs."""
        where = f"{self.topic}@{self.broker_name}[{self.queue_id}]:{self.queue_offset}"
        return f"MessageExt({where}, {len(self.body)} bytes)"


class UnreadableMessage(MessageExt):
    """A message whose body is not what was sent: `unreadable` says why, `body` is as stored.

    No handler gets one: it takes the way of a message whose handler failed. A consumer that polls
    gets it, and looks at `unreadable`.
    """

    __slots__ = ("is_damaged", "unreadable")
    unreadable: str
    is_damaged: bool


def _joined(keys: Iterable[str]) -> str:
    """The keys as one text; each must come back as one key."""
    try:
        found = list(keys)
        joined = " ".join(found)
    except TypeError:
        raise InvalidMessage(f"keys must be a text or a list of texts, not {keys!r}") from None
    if joined.split() != found:
        wrong = next(one for one in found if one.split() != [one])
        raise InvalidMessage(
            f"the key {wrong!r} is blank or has a blank in it, and blanks part the keys of a "
            "message in RocketMQ: it would come back as others"
        )
    return joined


def _value(message: MessageExt, name: str, mark: bytes) -> str | None:
    """The value of one property, `mark` being its name and 0x01; the others are left unread.

    Measured: 0.4 us, where to parse all of them takes 1.1.
    """
    raw, pairs = message.raw_properties, message.parsed
    if pairs is None:
        at = raw.rfind(mark)
        if at < 0:
            return None
        start, end = at + len(mark), raw.find(b"\x02", at)
        value = raw[start:end] if end >= 0 else raw[start:]
        if value and (at == 0 or raw[at - 1] == 2):
            return value.decode("utf-8", "replace")
        pairs = message.properties  # it is empty, or in the midst of another one
    return pairs.get(name)


def _parsed(raw: bytes) -> dict[str, str]:
    found = {}
    for entry in raw.decode("utf-8", "replace").split("\x02"):
        name, mark, value = entry.partition("\x01")
        if mark and name and value:
            found[name] = value
    return found
