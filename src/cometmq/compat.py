"""The names of rocketmq-client-python, and Java's listeners: programs written for them run as is.

Owns names, the order of arguments, and the rule that a callback which returns nothing means later;
refuses to do any of the work, which is `cometmq.client`'s. Invariant: what these classes do not
offer raises at once and says what to use instead.
Java: DefaultMQProducer, DefaultMQPushConsumer, MessageListenerConcurrently, MessageListenerOrderly
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cometmq.client.blocking.producer import Producer as _Producer
from cometmq.client.blocking.push_consumer import PushConsumer as _PushConsumer
from cometmq.client.handling.handler_call import RetryLater
from cometmq.client.session.argument_checks import check_function, check_whole
from cometmq.errors import ClientError
from cometmq.model import results
from cometmq.model.message import Message as _Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue


class ConsumeStatus(IntEnum):
    """What a callback returns; anything else, None included, means later."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class MessageModel(IntEnum):
    """Whether each message goes to every member of a group or to one."""

    BROADCASTING = 0
    CLUSTERING = 1


class SendStatus(IntEnum):
    """How safe a stored message is."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


class SendResult(NamedTuple):
    """The broker's answer to one message."""

    status: SendStatus
    msg_id: str
    offset: int


_MS_MAX = 2_147_483_647
_STATUS = {
    results.SendStatus.SEND_OK: SendStatus.OK,
    results.SendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    results.SendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    results.SendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Message:
    """One message to send, filled in by setters; texts are sent as UTF-8."""

    def __init__(self, topic: str | bytes) -> None:
        self.topic = _text(topic)
        self._keys: str | None = None
        self._tags: str | None = None
        self._body = b""
        self._properties: dict[str, str] = {}
        self._delay_level = 0

    def set_keys(self, keys: str | bytes) -> None:
        """Set the keys, separated by spaces."""
        self._keys = _text(keys)

    def set_tags(self, tags: str | bytes) -> None:
        """Set the tag."""
        self._tags = _text(tags)

    def set_body(self, body: str | bytes) -> None:
        """Set the body."""
        self._body = body if isinstance(body, bytes) else _text(body).encode()

    def set_property(self, key: str | bytes, value: str | bytes) -> None:
        """Set a property of one's own."""
        self._properties[_text(key)] = _text(value)

    def set_delay_time_level(self, delay_time_level: int) -> None:
        """Hold the message back: level 1 is 1 s with the default table."""
        self._delay_level = delay_time_level

    def made(self, sharding_key: str | None = None) -> _Message:
        """Return the message as `cometmq.Message`."""
        return _Message(
            self.topic,
            self._body,
            tags=self._tags,
            keys=self._keys,
            properties=self._properties,
            sharding_key=sharding_key,
            delay_level=self._delay_level,
        )


class RecvMessage:
    """One message as received. `keys`, `tags` and `body` are bytes, as in the old client."""

    def __init__(self, message: MessageExt) -> None:
        self.message = message
        self.topic = message.topic
        self.tags = (message.tags or "").encode()
        self.keys = " ".join(message.keys).encode()
        self.body = message.body
        self.id = message.msg_id
        self.delay_time_level = int(message.properties.get("DELAY") or 0)
        self.queue_id = message.queue_id
        self.reconsume_times = message.reconsume_times
        self.born_timestamp = message.born_ms
        self.store_timestamp = message.store_ms
        self.queue_offset = message.queue_offset
        self.commit_log_offset = message.phy_offset
        self.prepared_transaction_offset = message.prepared_offset

    def get_property(self, prop: str | bytes) -> str | None:
        """Return a property, or None."""
        return self.message.properties.get(_text(prop))

    def __str__(self) -> str:
        """Return the body as text."""
        return self.body.decode()

    def __bytes__(self) -> bytes:
        """Return the body."""
        return self.body

    def __repr__(self) -> str:
        """Return one line for logs."""
        return f"<RecvMessage topic={self.topic!r} id={self.id!r} body={self.body!r}>"


class _ClientSetup:
    """What the old client's producers and consumers have in common: settings before start."""

    def __init__(self, group_id: str | bytes) -> None:
        self._group = _text(group_id)
        self._settings: dict[str, Any] = {}

    def set_group(self, group_name: str | bytes) -> None:
        """Set the group's name."""
        self._group = _text(group_name)

    def set_instance_name(self, name: str | bytes) -> None:
        """Set the last part of the client id."""
        self._settings["instance_name"] = _text(name)

    def set_name_server_address(self, addr: str | bytes) -> None:
        """Set the name servers: "host:9876", several joined by ";"."""
        self._settings["namesrv"] = _text(addr)

    def set_namesrv_addr(self, addr: str | bytes) -> None:
        """Set the name servers: the name of the client's versions before 2.0."""
        self.set_name_server_address(addr)

    def set_name_server_domain(self, domain: str | bytes) -> None:
        """Refuse: an address server is not asked. Raises ClientError."""
        raise ClientError(
            f"the domain {_text(domain)!r} is not asked for name servers: give their addresses to "
            "set_name_server_address"
        )

    def set_namesrv_domain(self, domain: str | bytes) -> None:
        """Refuse, as `set_name_server_domain` does."""
        self.set_name_server_domain(domain)

    def set_session_credentials(
        self, access_key: str | bytes, access_secret: str | bytes, channel: str | bytes
    ) -> None:
        """Set the keys that requests are signed with; the channel has no meaning any more."""
        del channel
        self._settings["access_key"] = _text(access_key)
        self._settings["secret_key"] = _text(access_secret)


class Producer(_ClientSetup):
    """The old client's producer. Use it as a context manager, or call start and shutdown."""

    def __init__(
        self,
        group_id: str | bytes,
        orderly: bool = False,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id)
        del orderly  # sends of one sharding key are in order either way
        self._timeout_s = 3.0
        self._inner: _Producer | None = None
        if timeout is not None:
            self.set_timeout(timeout)
        if compress_level is not None:
            self.set_compress_level(compress_level)
        if max_message_size is not None:
            self.set_max_message_size(max_message_size)

    def set_timeout(self, timeout: int) -> None:
        """Set how long a send may take, ms."""
        check_whole("timeout", timeout, 1, _MS_MAX)
        self._timeout_s = timeout / 1000

    def set_compress_level(self, level: int) -> None:
        """Set the level of compression, 0 to 9; bodies from 4 KiB on are compressed."""
        self._settings["compress_level"] = level

    def set_max_message_size(self, max_size: int) -> None:
        """Set the largest body, bytes."""
        self._settings["body_bytes_max"] = max_size

    def start(self) -> None:
        """Make ready to send."""
        self._inner = _Producer(self._group, **self._settings)
        self._inner.start()

    def shutdown(self) -> None:
        """Close all connections."""
        if self._inner is not None:
            self._inner.stop()
            self._inner = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Shut down."""
        self.shutdown()

    def send_sync(self, msg: Message) -> SendResult:
        """Send and wait for the broker's answer. Raises cometmq's errors."""
        return _result(self._running.send(_made(msg), self._timeout_s))

    def send_oneway(self, msg: Message) -> None:
        """Send without waiting for an answer."""
        self._running.send_oneway(_made(msg))

    def send_orderly_with_sharding_key(
        self, message: Message, sharding_key: str | bytes
    ) -> SendResult:
        """Send to the queue of a key, in the order of the calls, and wait for the answer."""
        made = _made(message, _text(sharding_key))
        return _result(self._running.send(made, self._timeout_s))

    @property
    def _running(self) -> _Producer:
        if self._inner is None:
            raise ClientError("start the producer before it sends")
        return self._inner


class PushConsumer(_ClientSetup):
    """The old client's consumer: a callback gets one message at a time.

    A callback that returns anything but CONSUME_SUCCESS, or raises, gets its message again later.
    """

    def __init__(
        self,
        group_id: str | bytes,
        orderly: bool = False,
        message_model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        super().__init__(group_id)
        self._settings["orderly"] = orderly
        self._topics: dict[str, tuple[str, Callable[[RecvMessage], object]]] = {}
        self._inner: _PushConsumer | None = None
        self.set_message_model(message_model)

    def set_message_model(self, model: MessageModel | int) -> None:
        """Say whether each message goes to every member or to one."""
        if model not in tuple(MessageModel):
            raise ClientError(f"the message model is {model!r}; it must be one of MessageModel")
        self._settings["broadcasting"] = model == MessageModel.BROADCASTING

    def set_thread_count(self, thread_count: int) -> None:
        """Set how many callbacks may run at once."""
        self._settings["consume_threads"] = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        """Accept the size: a callback gets one message at a time, as ever."""
        del max_size

    def subscribe(
        self, topic: str | bytes, callback: Callable[[RecvMessage], object], expression: str = "*"
    ) -> None:
        """Let the callback have the messages of a topic; call it before start."""
        check_function("callback", callback, "a function of a message")
        self._topics[_text(topic)] = (expression, callback)

    def start(self) -> None:
        """Join the group and begin to receive."""
        self._inner = _PushConsumer(self._group, **self._settings)
        for topic, (expression, callback) in self._topics.items():
            self._inner.subscribe(topic, expression, _CallbackHandler(callback))
        self._inner.start()

    def shutdown(self) -> None:
        """Finish what is in hand, commit, leave the group."""
        if self._inner is not None:
            self._inner.stop()
            self._inner = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Shut down."""
        self.shutdown()


class _CallbackHandler:
    """A handler over a callback of the old client; can be sent to another process."""

    def __init__(self, callback: Callable[[RecvMessage], object]) -> None:
        self._callback = callback

    def __call__(self, messages: Sequence[MessageExt]) -> results.ConsumeStatus | None:
        for at, message in enumerate(messages):
            status = self._callback(RecvMessage(message))
            if status != ConsumeStatus.CONSUME_SUCCESS or isinstance(status, bool):
                raise RetryLater(f"the callback returned {status!r}", done=at)
        return None


class ConsumeConcurrentlyContext:
    """What a concurrent listener may say beside its status.

    `ack_index` is the last message that is done when the status is CONSUME_SUCCESS (None: all),
    `delay_level_when_next_consume` the delay level of the next attempt (0: the broker's choice,
    -1: none, but a dead letter at once).
    """

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.ack_index: int | None = None
        self.delay_level_when_next_consume = 0


class ConsumeOrderlyContext:
    """What an orderly listener may say beside its status.

    `suspend_current_queue_time_millis` is the rest of its queue after a failure (-1: as set). With
    `auto_commit` set to False, SUCCESS only says that these messages are done: they count once a
    call for the queue returns COMMIT, or leaves `auto_commit` as it is; ROLLBACK brings them again.
    """

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.suspend_current_queue_time_millis = -1
        self.auto_commit = True


class MessageListenerConcurrently(ABC):
    """Java's listener for a concurrent consumer: derive, and give an instance to `subscribe`."""

    @abstractmethod
    def consume_message(
        self, messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext
    ) -> results.ConsumeStatus | None:
        """Handle messages of one queue; CONSUME_SUCCESS is done, all else, None too, is later."""

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        """Be a handler: return when all are done, raise RetryLater for the rest."""
        context = ConsumeConcurrentlyContext(messages[0].message_queue)
        status = self.consume_message(messages, context)
        level, ack = context.delay_level_when_next_consume, context.ack_index
        if status is not results.ConsumeStatus.CONSUME_SUCCESS:
            raise RetryLater(f"the listener returned {status}", delay_level=max(-1, level))
        if ack is not None and ack < len(messages) - 1:
            reason = f"the listener is done up to {ack}"
            raise RetryLater(reason, delay_level=max(-1, level), done=max(0, ack + 1))


class MessageListenerOrderly(ABC):
    """Java's listener for an orderly consumer: derive, and give an instance to `subscribe`."""

    commits_by_status = True
    """The context of each call, not the consumer's setting, says whether SUCCESS commits."""

    @abstractmethod
    def consume_message(
        self, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> results.ConsumeStatus | None:
        """Handle messages of one queue in order; SUCCESS is done, all else, None too, is later."""

    def __call__(self, messages: Sequence[MessageExt]) -> results.ConsumeStatus | None:
        """Be a handler: return when they are done, raise RetryLater else."""
        context = ConsumeOrderlyContext(messages[0].message_queue)
        status = self.consume_message(messages, context)
        if status in (results.ConsumeStatus.COMMIT, results.ConsumeStatus.ROLLBACK):
            return status
        if status is not results.ConsumeStatus.SUCCESS:
            rest_ms = context.suspend_current_queue_time_millis
            reason = f"the listener returned {status}"
            raise RetryLater(reason, suspend_ms=rest_ms if rest_ms >= 0 else None)
        return results.ConsumeStatus.COMMIT if context.auto_commit else status


def _result(result: results.SendResult) -> SendResult:
    return SendResult(_STATUS[result.status], result.msg_id, result.queue_offset)


def _made(message: Message, sharding_key: str | None = None) -> _Message:
    if not isinstance(message, Message):
        raise ClientError(f"what is sent must be a cometmq.compat.Message, not {message!r:.80}")
    return message.made(sharding_key)


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ClientError(f"{value!r:.80} is no text in UTF-8") from None
    if not isinstance(value, str):
        raise ClientError(f"{value!r:.80} is no text; write str or bytes")
    return value
