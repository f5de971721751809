"""The blocking face of consumers: the asyncio classes, called from any thread.

Owns nothing but the crossing to the portal's loop; refuses to decide anything. Invariant: the same
methods, arguments and docstrings as the asyncio classes (a test compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cometmq.client.blocking.bridge import BlockingBridge
from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
from cometmq.client.polling.async_lite_pull_consumer import AsyncLitePullConsumer
from cometmq.client.session.argument_checks import checked_queues
from cometmq.errors import NotStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from cometmq.client.consumer.consumer_options import PushSettings
    from cometmq.client.handling.handler_call import Handler
    from cometmq.client.polling.lite_pull_options import LitePullSettings
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import BlockedQueue, PullResult
    from cometmq.model.selector import MessageSelector
    from cometmq.rules.failure_policy import FailurePolicy, Policies


class PushConsumer:
    """A member of a consumer group: each message goes to one member, or to all of them.

    A handler is a plain function (run in threads) or an async one (run as a task). It gets a list
    of 1 to `batch_size` messages of one queue, oldest first. Returning means they are done, raising
    means they shall come again later; RocketMQ's status values are understood as well. Delivery is
    at least once: after a crash or a hand-over messages may come again.

    `orderly`: each queue is handled in its order, one batch at a time, under a lock at the broker
    that is renewed every `lock_renew_s` and counts as ours for `lock_valid_s` after that (this must
    be less than the brokers' queueLockExpireMs, 60 s unless they are told otherwise); a failure
    stops its queue for `suspend_ms` (10 to 30,000), and a batch that fails is handled one message
    at a time. With `auto_commit` off, what a handler has done counts once one of its calls returns
    ConsumeStatus.COMMIT, and comes again from there after ROLLBACK. Otherwise up to
    `consume_threads` handlers run at once and a failed message comes back by way of the group's
    retry topic.
    `broadcasting`: every member gets every message, with offsets in a file of its own under
    `offsets_dir` (~/.rocketmq_offsets/<clientId>/<group>/offsets.json), and what fails is passed
    over; give each member of one host an `instance_name`, the same after a restart.
    `max_attempts` is how often a message may be handled before it becomes a dead letter of the
    group; by default 17 (the first and 16 more), when orderly for ever.
    `consume_from` says where a group without committed offset begins: ConsumeFrom, or its name as
    "first" (TIMESTAMP: at `consume_timestamp_ms`). `flow` bounds what is held of each queue.
    What a handler holds for `consume_timeout_s` (15 min) is sent back, unless orderly.
    `allocate` shares the queues out: "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", or a function (see
    `cometmq.rules.allocate`). `pull_interval_ms` is a pause after each pull that found
    something: it makes larger batches of a busy topic for less work in all. Offsets are committed
    every `persist_s` and at stop.

    `order`: "none" (concurrent), "queue" (the same as `orderly`), or "key": under the queue's lock,
    each key is a lane of its own. `key` is a property's name or a function of a message (None: the
    sharding key); `without_key` says what a message without one is: a "barrier" in its queue, one
    of one "lane", or "free". What is done above the committed offset is noted in `state_dir`
    (~/.cometmq). `on_failure` says what becomes of failures (see `OnFailure`), `breaker` when they
    count as an outage (BreakerLimits; by key always, else where it is given).
    `workers="process"` runs plain handlers in `consume_threads` processes; they must be importable,
    and a script needs `if __name__ == "__main__":`.
    """

    def __init__(self, group: str, **settings: Unpack[PushSettings]) -> None:
        self._inner = AsyncPushConsumer(group, **settings)
        self._bridge = BlockingBridge("consumer")

    def subscribe(
        self,
        topic: str,
        expression: str | MessageSelector = "*",
        handler: Handler | None = None,
        *,
        on_failure: FailurePolicy | Policies | None = None,
    ) -> None:
        """Let `handler` have the messages of `topic` that the expression takes.

        The expression is "*" for all, tags joined by "||" as in "PAID || SHIPPED", or a condition
        on properties: MessageSelector.by_sql("price > 10"). All members of a group must subscribe
        to the same. Raises ClientError without a handler, for another expression and once the
        consumer has started, InvalidMessage for a bad topic.

        `on_failure` says what becomes of this topic's messages that fail: a policy, or one for each
        type of exception (see `OnFailure`); None means the consumer's own `on_failure`.
        """
        self._inner.subscribe(topic, expression, handler, on_failure=on_failure)

    def start(self) -> None:
        """Join the group and begin to receive. Waits for nothing: brokers may come later.

        Raises ClientError when there is no subscription.
        """
        if not self._bridge.is_entered:
            self._bridge.enter(self._inner.start())

    def stop(self) -> None:
        """Take no new messages, finish those in hand, commit, leave the group.

        Waits at most `stop_timeout_s` for handlers; what they have not finished comes again.
        """
        self._bridge.leave(self._inner.stop())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is stopped, or `timeout_s` is over; whether it is stopped."""
        if not self._bridge.is_entered:
            return True
        return self._bridge.call(self._inner.wait(timeout_s))

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        self.stop()

    def pause(self) -> None:
        """Take no further messages from brokers until `resume`; those here are still handled."""
        if self._bridge.is_entered:
            self._bridge.portal.run(self._inner.pause)

    def resume(self) -> None:
        """Take messages again after `pause`."""
        if self._bridge.is_entered:
            self._bridge.portal.run(self._inner.resume)

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty before start."""
        return self._inner.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this member works on now, retry queues included, in order."""
        return self._inner.assigned

    @property
    def blocked(self) -> list[BlockedQueue]:
        """Orderly queues that stand still since their first message keeps failing."""
        return self._inner.blocked

    @property
    def overlaps(self) -> int:
        """Orderly messages whose results were discarded, as the lock had run out meanwhile.

        Another member may have had the same messages; 0 unless this process stood still, or was
        cut off from the broker, for longer than `lock_valid_s`.
        """
        return self._inner.overlaps


class LitePullConsumer:
    """A consumer whose program polls: it decides when it takes messages and what is committed.

    `subscribe` shares the queues of topics out among the members of the group; `assign` takes the
    queues given and asks nobody. Messages are pulled ahead, up to `flow` of each queue and
    `cached_max` (10,000) in all; `poll` hands them out, at most `pull_batch_size` (10) at once and
    of one queue, and `async for message in consumer` (or `for`) one by one.

    With `auto_commit` (on) the positions are committed every `auto_commit_s` (5) at the next poll:
    then all that earlier polls gave counts as done, the messages of the last one do not. A stop
    commits them as well, unless the `with` block was left by an error. Delivery is at least once.
    `consume_from`, `consume_timestamp_ms`, `allocate`, `broadcasting` and `offsets_dir` are as for
    PushConsumer. There is no retry topic and there are no dead letters.
    """

    def __init__(self, group: str, **settings: Unpack[LitePullSettings]) -> None:
        self._inner = AsyncLitePullConsumer(group, **settings)
        self._bridge = BlockingBridge("consumer")

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Share in the messages of `topic` that the expression takes, before the start.

        The expression is as for PushConsumer. Raises ClientError after `assign` or `start`.
        """
        self._inner.subscribe(topic, expression)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take exactly these queues, whoever else reads them; at any time, again and again.

        Raises ClientError after `subscribe`.
        """
        wanted = checked_queues("queues", queues)
        if self._bridge.is_entered:
            self._bridge.portal.run(lambda: self._inner.assign(wanted))
        else:
            self._inner.assign(wanted)

    def start(self) -> None:
        """Join the group and begin to pull what is subscribed or assigned."""
        if not self._bridge.is_entered:
            self._bridge.enter(self._inner.start())

    def stop(self) -> None:
        """Commit (if `auto_commit`, everything handed out), and leave the group."""
        self._bridge.leave(self._inner.stop())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop; after an error what was handed out last is not committed."""
        self._bridge.leave(self._inner.__aexit__(*exc))

    def __iter__(self) -> Self:
        """Go over messages, until the consumer is stopped."""
        return self

    def __next__(self) -> MessageExt:
        """The next message, whenever it comes."""
        try:
            return self._bridge.call(anext(self._inner))
        except (StopAsyncIteration, NotStarted):
            raise StopIteration from None

    def poll(self, timeout_s: float = 5.0, max_count: int | None = None) -> list[MessageExt]:
        """The next messages of one queue, oldest first; none if none come in time.

        At most `max_count` (default: `pull_batch_size`).
        """
        return self._bridge.call(self._inner.poll(timeout_s, max_count))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit that everything handed out is done, or the offsets given; wait for the brokers.

        An offset is the first one that is not done. Raises RemotingError or BrokerError.
        """
        self._bridge.call(self._inner.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group in a queue, or None."""
        return self._bridge.call(self._inner.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll gives of an assigned queue."""
        return self._bridge.call(self._inner.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of an assigned queue; what was pulled of it is forgotten.

        Raises ClientError for another queue, and for an offset the queue does not have.
        """
        self._bridge.call(self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of an assigned queue."""
        self._bridge.call(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the newest message of an assigned queue."""
        self._bridge.call(self._inner.seek_to_end(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out and pull nothing of these queues until `resume`."""
        self._bridge.call(self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues after `pause`."""
        self._bridge.call(self._inner.resume(queues))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        return self._bridge.call(self._inner.fetch_message_queues(topic))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at `timestamp_ms` (since 1970) or later."""
        return self._bridge.call(self._inner.offset_for_timestamp(queue, timestamp_ms))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue that is still there."""
        return self._bridge.call(self._inner.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return self._bridge.call(self._inner.max_offset(queue))

    def pull(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector = "*",
        offset: int = 0,
        max_count: int = 32,
        *,
        block_s: float = 0.0,
    ) -> PullResult:
        """Pull one queue once, apart from all that is subscribed, assigned, polled or committed.

        With `block_s` (at most 30) the broker waits so long for a message. The result says where to
        go on, whatever was found. Raises RemotingError or BrokerError.
        """
        return self._bridge.call(
            self._inner.pull(queue, expression, offset, max_count, block_s=block_s)
        )

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty before start."""
        return self._inner.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this consumer pulls now, in order."""
        return self._inner.assigned
