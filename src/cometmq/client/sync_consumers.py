"""The blocking face of consumers: the asyncio classes, called from any thread.

Owns nothing but the crossing to the portal's loop; refuses to decide anything. Invariant: the same
methods, arguments and docstrings as the asyncio classes (a test compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cometmq.client.crossing import Crossing
from cometmq.client.push_consumer import AsyncPushConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from cometmq.client.consumer_options import PushSettings
    from cometmq.client.handlers import Handler
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import BlockedQueue
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
    """

    def __init__(self, group: str, **settings: Unpack[PushSettings]) -> None:
        self._inner = AsyncPushConsumer(group, **settings)
        self._crossing = Crossing("consumer")

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

    def pause(self) -> None:
        """Take no further messages from brokers until `resume`; those here are still handled."""
        if self._crossing.is_entered:
            self._crossing.portal.run(self._inner.pause)

    def resume(self) -> None:
        """Take messages again after `pause`."""
        if self._crossing.is_entered:
            self._crossing.portal.run(self._inner.resume)

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
