"""The blocking face of producers and admins: the asyncio classes, called from any thread.

Owns nothing but the crossing to the portal's loop; refuses to decide anything. A plain send
does not cross: the calling thread makes it on a connection of its own (`direct`). Invariant: the
same methods, arguments and docstrings as the asyncio classes (a test compares them). Safe to use
from several threads; a forked child must make its own.
"""

from __future__ import annotations

import time
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Self, Unpack, cast

from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.client.blocking.bridge import BlockingBridge
from cometmq.client.producer import message_checks as validation
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.client.producer.thread_sender import FailedSend
from cometmq.client.producer.transactions import state_of
from cometmq.client.session.argument_checks import check_function
from cometmq.model.results import SendResult, TransactionResult, TransactionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from cometmq.client.producer.producer_options import ProducerSettings
    from cometmq.client.producer.queue_selector import SelectQueue
    from cometmq.client.producer.transactions import AsyncTransaction
    from cometmq.client.session.client_options import TransactionVerdict
    from cometmq.model.message import Message, MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo
    from cometmq.model.stats import OffsetWrapper, TopicOffset


class Producer:
    """Sends messages to the brokers that the name servers name.

    `group` names the producers that send for one purpose. `namesrv` is "host:port", several joined
    by ";" or as a list; without it the environment's NAMESRV_ADDR is used. `retries` counts further
    attempts after the first, on other brokers where there are any. Bodies from
    `compress_over_bytes` on are deflated. `check`, a plain or async function of a message, tells
    brokers how a transaction ended that they heard nothing of: True, False, or None for later.

    `retry_not_ok`: a message that was stored, but not as safely as asked for, goes to another
    broker as well. `latency_fault`, "classic" (RocketMQ 4) or "current" (5), keeps away from slow
    and failing brokers for a while; `detect_faults` looks whether a broker that was gone is back.
    `keys`, "hash" or "balanced", says how a sharding key finds its queue, and `strict_order` fails
    rather than let a key change its queue. `compression` is "zlib", "lz4" or "zstd".

    `access_key`, `secret_key` and `security_token` sign all requests, `tls` (True or an
    SSLContext) encrypts them, `namespace` or `namespace_v2` is the instance of a shared cluster,
    and `unit_name` a part of the client id. `trace`, True or a topic's name, tells RocketMQ's trace
    topic of every message. Use it as a context manager, or call start and stop.
    """

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        self._inner = AsyncProducer(group, **settings)
        self._bridge = BlockingBridge("producer")

    def start(self) -> None:
        """Make ready to send. No connection is made before the first message needs it."""
        if not self._bridge.is_entered:
            self._bridge.enter(self._inner.start())

    def stop(self) -> None:
        """Wait for the sends begun with send_async, then close all connections."""
        self._bridge.leave(self._inner.stop())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def send(
        self,
        message: Message,
        timeout_s: float = 3.0,
        *,
        queue: MessageQueue | SelectQueue | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        The queue is the one given, or chosen by a function of the topic's queues and the message
        (`by_hash` makes one), else that of the message's sharding key, else the next in turn.
        `timeout_s` bounds the whole call, retries included. Raises InvalidMessage, RouteNotFound,
        RemotingError (RemotingTimeout at the deadline) or BrokerError.
        """
        if queue is None and self._bridge.is_entered:
            begun = time.monotonic()
            validation.check_timeout(timeout_s)
            pipeline = self._inner.pipeline
            found = pipeline.thread_sender.send(message, timeout_s)
            if type(found) is SendResult:
                return found
            if type(found) is FailedSend:
                deadline = begun + timeout_s
                return self._bridge.call(pipeline.send_after_failure(message, found, deadline))
            # to look for a connection may have taken some of the time
            timeout_s = max(begun + timeout_s - time.monotonic(), 0.001)
        return self._bridge.call(self._inner.send(message, timeout_s, queue=queue))

    def send_async(
        self,
        message: Message,
        timeout_s: float = 3.0,
        *,
        queue: MessageQueue | SelectQueue | None = None,
    ) -> Future[SendResult]:
        """Begin to send one message and return the future of its result; otherwise like send.

        Messages of one sharding key leave in the order of the calls. When 65,535 sends are under
        way it fails with TooManyRequests, and nothing is sent: by raising it, or, blocking, as the
        result of the future. The blocking call raises it when as many wait to be begun.
        """
        return self._bridge.portal.begin(
            lambda: self._inner.send_async(message, timeout_s, queue=queue)
        )

    def send_oneway(
        self, message: Message, *, queue: MessageQueue | SelectQueue | None = None
    ) -> None:
        """Write one message to a broker; whether it was stored, nobody says.

        Raises InvalidMessage, RouteNotFound, or RemotingError when there is no connection.
        """
        self._bridge.call(self._inner.send_oneway(message, queue=queue))

    def send_batch(self, messages: Iterable[Message], timeout_s: float = 3.0) -> list[SendResult]:
        """Send messages of one topic in as few requests as possible; one result for each, in order.

        Messages with a sharding key go to the key's queue, in their order; the others share one
        queue. Retried like send. Raises PartlySent (with the results so far) when some of several
        requests failed, else the error itself.
        """
        return self._bridge.call(self._inner.send_batch(messages, timeout_s))

    def send_many(self, messages: Iterable[Message], timeout_s: float = 60.0) -> list[SendResult]:
        """Send many messages fast and in order; one result for each, in the order given.

        Messages are grouped by queue: a queue has one request under way, queues go side by side,
        and no queue is ever reordered. While a broker is away its messages wait and are tried again
        until `timeout_s` seconds are over. Raises PartlySent (its `results` say what was stored).
        """
        return self._bridge.call(self._inner.send_many(messages, timeout_s))

    def transaction(self) -> Transaction:
        """A block whose messages are committed at its end and rolled back by an exception.

        Give the producer a `check` as well: brokers ask it about what nobody ended.
        """
        return Transaction(self._inner.transaction(), self._bridge)

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message], TransactionVerdict | Awaitable[TransactionVerdict]],
        timeout_s: float = 3.0,
    ) -> TransactionResult:
        """Store a half message, run `local` with it, and end as that says.

        True commits, False rolls back, None leaves it to the broker, which asks the producer's
        `check`; so does an exception, which is raised on. Other errors are those of send.
        """
        check_function("local", local, "a function of the message")
        if iscoroutinefunction(local):
            inner = self._inner.send_in_transaction(message, local, timeout_s)
            return self._bridge.call(inner)
        state = TransactionState.UNKNOWN
        transaction = self.transaction()
        sent = transaction.send(message, timeout_s)
        try:
            state = state_of(cast("TransactionVerdict", local(message)))
        finally:
            transaction.end(state, timeout_s)
        return TransactionResult(sent, state)

    def request(self, message: Message, timeout_s: float = 3.0) -> MessageExt:
        """Send a message and wait for the reply that whoever consumes it makes with `reply`.

        Raises RemotingTimeout when none comes in time; otherwise like send.
        """
        return self._bridge.call(self._inner.request(message, timeout_s))

    def reply(self, request: MessageExt, body: bytes, timeout_s: float = 3.0) -> SendResult:
        """Answer a message that was sent with `request`; called in its consumer.

        Raises InvalidMessage when nobody asked, BrokerError when the asking client is gone.
        """
        return self._bridge.call(self._inner.reply(request, body, timeout_s))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages may be sent to, in their order."""
        return self._bridge.call(self._inner.queues(topic))


class Transaction:
    """Messages that become visible together with the end of a block, or not at all.

    Each is stored at its broker when it is sent, and committed when the block ends; an exception
    rolls all of them back. When the process dies in between, or a broker does not hear the end, the
    broker asks the producer's `check`. Several messages end one after the other: a crash between
    two ends leaves the others to `check`.
    """

    def __init__(self, inner: AsyncTransaction, crossing: BlockingBridge) -> None:
        self._inner, self._bridge = inner, crossing

    def send(self, message: Message, timeout_s: float = 3.0) -> SendResult:
        """Store a message that nobody reads before the transaction is committed.

        Raises what the producer's send raises, ClientError once the transaction has ended.
        """
        return self._bridge.call(self._inner.send(message, timeout_s))

    def end(self, state: TransactionState | bool | None = True, timeout_s: float = 3.0) -> None:
        """End it before the block does: True commits, False rolls back, None leaves it to `check`.

        Raises BrokerError when a broker refuses. A broker that cannot be reached asks later.
        """
        self._bridge.call(self._inner.end(state, timeout_s))

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an exception; nothing when it has ended."""
        self._bridge.call(self._inner.__aexit__(kind, error, traceback))


class Admin:
    """Asks and tells name servers and brokers what operators need.

    `namesrv` is "host:port", several joined by ";" or as a list; without it the environment's
    NAMESRV_ADDR is used. Use it as a context manager, or call start and stop. All methods raise
    RemotingError when a peer does not answer and BrokerError when it refuses.
    """

    def __init__(
        self, *, namesrv: str | Sequence[str] | None = None, timeout_s: float = 6.0
    ) -> None:
        self._inner = AsyncAdmin(namesrv=namesrv, timeout_s=timeout_s)
        self._bridge = BlockingBridge("admin")

    def start(self) -> None:
        """Make ready. No connection is made before the first question needs it."""
        if not self._bridge.is_entered:
            self._bridge.enter(self._inner.start())

    def stop(self) -> None:
        """Close all connections."""
        self._bridge.leave(self._inner.stop())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def clusters(self) -> ClusterInfo:
        """All brokers and the clusters they belong to."""
        return self._bridge.call(self._inner.clusters())

    def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics, sorted; those brokers keep for themselves only when asked for.

        Retry topics and dead-letter topics count as the users'.
        """
        return self._bridge.call(self._inner.topics(with_system=with_system))

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        perm: int = 6,
        order: bool = False,
        brokers: Sequence[str] = (),
    ) -> None:
        """Create or change a topic on all masters, or on the brokers named; wait for its route.

        `queues` is the number on each broker, `perm` 6 means read and write, 4 read only, 2 write
        only. Raises ClientError for more queues of a topic that was made for global order.
        """
        self._bridge.call(
            self._inner.create_topic(topic, queues, perm=perm, order=order, brokers=brokers)
        )

    def create_ordered_topic(self, topic: str, *, perm: int = 6, groups: Sequence[str] = ()) -> str:
        """Create a topic whose messages all have one order: one queue on one broker, whose name
        comes back.

        The topic is marked, and refuses to grow from then on; a broker of Apache's keeps the mark
        only where one of ours wrote it. The groups named are made there and marked as orderly.
        Raises ClientError when the topic has more queues, or lies on another broker, already.
        """
        return self._bridge.call(self._inner.create_ordered_topic(topic, perm=perm, groups=groups))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        return self._bridge.call(self._inner.queues(topic))

    def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The first and the next offset of each queue, and when its last message was stored (ms).

        The difference of the offsets is what is stored; the time is 0 for an empty queue.
        """
        return self._bridge.call(self._inner.topic_stats(topic))

    def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The offset a group has committed in each queue; None where it has none."""
        return self._bridge.call(self._inner.group_offsets(group, topic))

    def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """How far a group is in each queue; without a commit it counts as being at the start.

        The lag of a queue is its `broker_offset - consumer_offset`.
        """
        return self._bridge.call(self._inner.consume_stats(group, topic))

    def set_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group. Its members, if any are running, will commit their own."""
        self._bridge.call(self._inner.set_group_offsets(group, offsets))
