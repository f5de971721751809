"""The blocking face of producers and admins: the asyncio classes, called from any thread.

Owns nothing but the crossing to the portal's loop; refuses to decide anything. A plain send
does not cross: the calling thread makes it on a connection of its own (`direct`). Invariant: the
same methods, arguments and docstrings as the asyncio classes (a test compares them). Safe to use
from several threads; a forked child must make its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from cometmq.client import validation
from cometmq.client.admin import AsyncAdmin
from cometmq.client.crossing import Crossing
from cometmq.client.direct import Unsent
from cometmq.client.producer import AsyncProducer
from cometmq.model.results import SendResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo
    from cometmq.model.stats import OffsetWrapper, TopicOffset


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
        self._crossing = Crossing("producer")

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
        if queue is None and self._crossing.is_entered:
            begun = time.monotonic()
            validation.check_timeout(timeout_s)
            sends = self._inner.sends
            found = sends.direct.send(message, timeout_s)
            if type(found) is SendResult:
                return found
            if type(found) is Unsent:
                deadline = begun + timeout_s
                return self._crossing.call(sends.again(message, *found, deadline))
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
        self._crossing = Crossing("admin")

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
