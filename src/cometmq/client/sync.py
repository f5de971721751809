"""The blocking face of the client: the asyncio classes, called from any thread.

Owns nothing but the crossing to the portal's loop; refuses to decide anything. Invariant: the same
methods, arguments and docstrings as the asyncio classes (a test compares them). Safe to use from
several threads; a forked child must make its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cometmq.client.admin import AsyncAdmin
from cometmq.client.portal import Portal
from cometmq.client.producer import AsyncProducer
from cometmq.client.push_consumer import AsyncPushConsumer
from cometmq.errors import NotStarted
from cometmq.model.results import ConsumeFrom
from cometmq.rules.allocate import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from typing import TypeVar

    from cometmq.client.handlers import Handler
    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult
    from cometmq.model.route import ClusterInfo
    from cometmq.model.stats import OffsetWrapper, TopicOffset
    from cometmq.rules.allocate import Allocate
    from cometmq.rules.flow import FlowLimits

    T = TypeVar("T")


class _Crossing:
    """The portal of one blocking client, held from start to stop."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._portal: Portal | None = None

    def enter(self, start: Coroutine[object, object, None]) -> None:
        """Take the portal and run the start of the client on it."""
        portal = Portal.enter()
        try:
            portal.call(start)
            self._portal = portal
        finally:
            if self._portal is None:
                portal.leave()

    def leave(self, stop: Coroutine[object, object, None]) -> None:
        """Run the stop of the client and give the portal back."""
        if self._portal is None:
            stop.close()
            return
        portal, self._portal = self._portal, None
        try:
            portal.call(stop)
        finally:
            portal.leave()

    @property
    def is_entered(self) -> bool:
        """Whether the client is started."""
        return self._portal is not None

    @property
    def portal(self) -> Portal:
        """The portal; raises NotStarted before start and after stop."""
        if self._portal is None:
            raise NotStarted(
                f"this {self._what} is not running: use it inside 'with', or call start()"
            )
        return self._portal

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run one coroutine on the client's loop and wait for it."""
        if self._portal is None:
            work.close()
        return self.portal.call(work)


class Producer:
    """Sends messages to the brokers that the name servers name.

    `group` names the producers that send for one purpose. `namesrv` is "host:port", several joined
    by ";" or as a list; without it the environment's NAMESRV_ADDR is used. `retries` counts further
    attempts after the first, on other brokers where there are any. Bodies from
    `compress_over_bytes` on are deflated. Use it as a context manager, or call start and stop.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        retries: int = 2,
        compress_over_bytes: int = 4096,
        body_bytes_max: int = 4 * 1024 * 1024,
        default_topic_queues: int = 4,
        instance_name: str | None = None,
    ) -> None:
        self._inner = AsyncProducer(
            group,
            namesrv=namesrv,
            retries=retries,
            compress_over_bytes=compress_over_bytes,
            body_bytes_max=body_bytes_max,
            default_topic_queues=default_topic_queues,
            instance_name=instance_name,
        )
        self._crossing = _Crossing("producer")

    def start(self) -> None:
        """Make ready to send. No connection is made before the first message needs it."""
        if not self._crossing.is_entered:
            self._crossing.enter(self._inner.start())

    def stop(self) -> None:
        """Wait for the sends begun with send_async, then close all connections."""
        self._crossing.leave(self._inner.stop())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def send(
        self, message: Message, timeout_s: float = 3.0, *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        The queue is the one given, else that of the message's sharding key, else the next in turn.
        `timeout_s` bounds the whole call, retries included. Raises InvalidMessage, RouteNotFound,
        RemotingError (RemotingTimeout at the deadline) or BrokerError.
        """
        return self._crossing.call(self._inner.send(message, timeout_s, queue=queue))

    def send_async(
        self, message: Message, timeout_s: float = 3.0, *, queue: MessageQueue | None = None
    ) -> Future[SendResult]:
        """Begin to send one message and return the future of its result; otherwise like send.

        Messages of one sharding key leave in the order of the calls. Raises TooManyRequests when
        65,535 sends are under way.
        """
        return self._crossing.portal.begin(
            lambda: self._inner.send_async(message, timeout_s, queue=queue)
        )

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Write one message to a broker; whether it was stored, nobody says.

        Raises InvalidMessage, RouteNotFound, or RemotingError when there is no connection.
        """
        self._crossing.call(self._inner.send_oneway(message, queue=queue))

    def send_batch(self, messages: Iterable[Message], timeout_s: float = 3.0) -> list[SendResult]:
        """Send messages of one topic in as few requests as possible; one result for each, in order.

        Messages with a sharding key go to the key's queue, in their order; the others share one
        queue. Retried like send. Raises PartlySent (with the results so far) when some of several
        requests failed, else the error itself.
        """
        return self._crossing.call(self._inner.send_batch(messages, timeout_s))

    def send_many(self, messages: Iterable[Message], timeout_s: float = 60.0) -> list[SendResult]:
        """Send many messages fast and in order; one result for each, in the order given.

        Messages are grouped by queue: a queue has one request under way, queues go side by side,
        and no queue is ever reordered. While a broker is away its messages wait and are tried again
        until `timeout_s` seconds are over. Raises PartlySent (its `results` say what was stored).
        """
        return self._crossing.call(self._inner.send_many(messages, timeout_s))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages may be sent to, in their order."""
        return self._crossing.call(self._inner.queues(topic))


class PushConsumer:
    """A member of a consumer group, in clustering mode: each message goes to one member.

    A handler is a plain function (run in threads) or an async one (run as a task). It gets a list
    of 1 to `batch_size` messages of one queue, oldest first. Returning means they are done, raising
    means they shall come again later; RocketMQ's status values are understood as well. Delivery is
    at least once: after a crash or a hand-over messages may come again.

    `orderly`: each queue is handled in its order, one batch at a time, under a lock at the broker
    that is renewed every `lock_renew_s` and counts as ours for `lock_valid_s` after that (this must
    be less than the brokers' queueLockExpireMs, 60 s unless they are told otherwise); a failure
    stops its queue for `suspend_ms` (10 to 30,000), and a batch that fails is handled one message
    at a time. Otherwise up to `consume_threads`
    handlers run at once and a failed message comes back by way of the group's retry topic.
    `max_attempts` is how often a message may be handled before it becomes a dead letter of the
    group; by default 17 (the first and 16 more), when orderly for ever.
    `consume_from` says where a group without committed offset begins: ConsumeFrom, or its name as
    "first" (TIMESTAMP: at `consume_timestamp_ms`). `flow` bounds what is held of each queue.
    `allocate` shares the queues out: "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", or a function (see
    `cometmq.rules.allocate`). `pull_interval_ms` is a pause after each pull that found
    something: it makes larger batches of a busy topic for less work in all. Offsets are committed
    every `persist_s` and at stop.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        orderly: bool = False,
        consume_threads: int = 20,
        batch_size: int = 1,
        pull_batch_size: int = 32,
        pull_interval_ms: int = 0,
        max_attempts: int | None = None,
        suspend_ms: int = 1000,
        consume_from: ConsumeFrom | str = ConsumeFrom.LAST,
        consume_timestamp_ms: int | None = None,
        allocate: Allocate | str = STRATEGIES["AVG"],
        flow: FlowLimits | None = None,
        persist_s: float = 5.0,
        rebalance_s: float = 20.0,
        lock_renew_s: float = 20.0,
        lock_valid_s: float = 30.0,
        heartbeat_s: float = 30.0,
        stop_timeout_s: float = 30.0,
        instance_name: str | None = None,
    ) -> None:
        self._inner = AsyncPushConsumer(
            group,
            namesrv=namesrv,
            orderly=orderly,
            consume_threads=consume_threads,
            batch_size=batch_size,
            pull_batch_size=pull_batch_size,
            pull_interval_ms=pull_interval_ms,
            max_attempts=max_attempts,
            suspend_ms=suspend_ms,
            consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms,
            allocate=allocate,
            flow=flow,
            persist_s=persist_s,
            rebalance_s=rebalance_s,
            lock_renew_s=lock_renew_s,
            lock_valid_s=lock_valid_s,
            heartbeat_s=heartbeat_s,
            stop_timeout_s=stop_timeout_s,
            instance_name=instance_name,
        )
        self._crossing = _Crossing("consumer")

    def subscribe(self, topic: str, expression: str = "*", handler: Handler | None = None) -> None:
        """Let `handler` have the messages of `topic` whose tag the expression names.

        The expression is "*" for all, or tags joined by "||" as in "PAID || SHIPPED". All members
        of a group must subscribe to the same. Raises ClientError without a handler, for another
        expression and once the consumer has started, InvalidMessage for a bad topic.
        """
        self._inner.subscribe(topic, expression, handler)

    def start(self) -> None:
        """Join the group and begin to receive. Waits for nothing: brokers may come later.

        Raises ClientError when there is no subscription.
        """
        if not self._crossing.is_entered:
            self._crossing.enter(self._inner.start())

    def stop(self) -> None:
        """Take no new messages, finish those in hand, commit, leave the group.

        Waits at most `stop_timeout_s` for handlers; what they have not finished comes again.
        """
        self._crossing.leave(self._inner.stop())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is stopped, or `timeout_s` is over; whether it is stopped."""
        if not self._crossing.is_entered:
            return True
        return self._crossing.call(self._inner.wait(timeout_s))

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty before start."""
        return self._inner.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this member works on now, retry queues included, in order."""
        return self._inner.assigned


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
        self._crossing = _Crossing("admin")

    def start(self) -> None:
        """Make ready. No connection is made before the first question needs it."""
        if not self._crossing.is_entered:
            self._crossing.enter(self._inner.start())

    def stop(self) -> None:
        """Close all connections."""
        self._crossing.leave(self._inner.stop())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def clusters(self) -> ClusterInfo:
        """All brokers and the clusters they belong to."""
        return self._crossing.call(self._inner.clusters())

    def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics, sorted; those brokers keep for themselves only when asked for.

        Retry topics and dead-letter topics count as the users'.
        """
        return self._crossing.call(self._inner.topics(with_system=with_system))

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
        only.
        """
        self._crossing.call(
            self._inner.create_topic(topic, queues, perm=perm, order=order, brokers=brokers)
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        return self._crossing.call(self._inner.queues(topic))

    def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The first and the next offset of each queue, and when its last message was stored (ms).

        The difference of the offsets is what is stored; the time is 0 for an empty queue.
        """
        return self._crossing.call(self._inner.topic_stats(topic))

    def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The offset a group has committed in each queue; None where it has none."""
        return self._crossing.call(self._inner.group_offsets(group, topic))

    def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """How far a group is in each queue; without a commit it counts as being at the start.

        The lag of a queue is its `broker_offset - consumer_offset`.
        """
        return self._crossing.call(self._inner.consume_stats(group, topic))

    def set_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group. Its members, if any are running, will commit their own."""
        self._crossing.call(self._inner.set_group_offsets(group, offsets))
