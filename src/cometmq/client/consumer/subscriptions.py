"""What a consumer subscribes to: topics, expressions, handlers.

Owns the table from topic to handler and its form in heartbeats; knows nothing of queues.
Invariant: the group's retry topic is always among the topics (unless it is broadcast to), and a
message of it goes to the handler of the topic it was first sent to.
Java: RebalanceImpl.subscriptionInner, FilterAPI
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from cometmq.client.consumer.pull_request import TopicFilter, filter_of
from cometmq.client.handling.handler_call import is_async
from cometmq.errors import ClientError
from cometmq.model.selector import MessageSelector
from cometmq.model.subscription import SQL92, TAG, SubscriptionData
from cometmq.model.topic import retry_topic_of
from cometmq.rules.filters.tag_expressions import expression_problem, split_expression
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.handling.handler_call import Handler, SyncHandler
    from cometmq.rules.failures.failure_policy import Policies

log = logging.getLogger(__name__)

_UNSUBSCRIBED_MAX = 100
"""Topics without a subscription that are logged."""


def selector_of(topic: str, expression: str | MessageSelector) -> MessageSelector:
    """The selector that a user's expression means. Raises ClientError when it means none."""
    if isinstance(expression, MessageSelector) and expression.expression_type != TAG:
        if expression.expression_type != SQL92 or not isinstance(expression.expression, str):
            raise ClientError(
                f"subscribe to {topic}: the expression is {expression!r:.120}; make it with "
                "MessageSelector.by_tag or MessageSelector.by_sql"
            )
        if not expression.expression.strip():
            raise ClientError(f"subscribe to {topic}: the condition is empty")
        return expression
    text = expression.expression if isinstance(expression, MessageSelector) else expression
    problem = expression_problem(text) if isinstance(text, str) else "it is no text"
    if problem:
        raise ClientError(
            f"subscribe to {topic}: the expression is {text!r}, {problem}; write '*', tags as in "
            "'PAID || SHIPPED', or a condition as in MessageSelector.by_sql(\"price > 10\")"
        )
    return MessageSelector.by_tag(text)


class Subscription(NamedTuple):
    """One topic's filter and handler."""

    data: SubscriptionData
    filter: TopicFilter
    handler: Handler
    is_async: bool
    on_failure: Policies | None = None
    commits_by_status: bool = False
    """Whether, in order, only COMMIT commits, whatever the consumer's `auto_commit` is."""


class Subscriptions:
    """All subscriptions of one consumer, fixed once it has started."""

    def __init__(self, group: str, *, broadcasting: bool = False) -> None:
        self._retry_topics = [] if broadcasting else [retry_topic_of(group)]
        self._by_topic: dict[str, Subscription] = {}
        self._version = 0
        self._unsubscribed: set[str] = set()

    def add(
        self,
        topic: str,
        selector: MessageSelector,
        handler: Handler,
        on_failure: Policies | None = None,
    ) -> None:
        """Let `handler` have the messages of `topic` that the selector takes."""
        data, wanted = _subscription(topic, selector)
        by_status = getattr(handler, "commits_by_status", False) is True
        self._by_topic[topic] = Subscription(
            data, wanted, handler, is_async(handler), on_failure, by_status
        )

    def replace_handlers(self, handler_of: Callable[[str], Handler]) -> None:
        """Replace the handler of each topic by what `handler_of` returns for the topic."""
        self._by_topic = {
            topic: own._replace(handler=handler_of(topic)) for topic, own in self._by_topic.items()
        }

    @property
    def sync_handlers(self) -> dict[str, SyncHandler]:
        """The handlers by topic. Raises ClientError when one is an async function."""
        for topic, own in self._by_topic.items():
            if own.is_async:
                raise ClientError(
                    f"the handler of {topic} is async, which goes with tasks only: with "
                    "workers='process' it must be a plain function"
                )
        return {topic: cast("SyncHandler", own.handler) for topic, own in self._by_topic.items()}

    def freeze(self, version_ms: int) -> None:
        """Fix the subscriptions and their version; raises ClientError when there is none."""
        if not self._by_topic:
            raise ClientError("this consumer listens to nothing: call subscribe before start")
        self._version = version_ms

    @property
    def version(self) -> int:
        """The version that heartbeats and pulls carry, ms."""
        return self._version

    @property
    def topics(self) -> list[str]:
        """The topics whose queues are shared out, the retry topic included."""
        return [*self._by_topic, *self._retry_topics]

    @property
    def sql_subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions with SQL conditions, which brokers evaluate."""
        return [data for data in self.data() if data.expression_type != TAG]

    def filter_of(self, topic: str) -> TopicFilter:
        """The filter of a topic; of a retry topic everything is wanted."""
        found = self._by_topic.get(topic)
        wanted = found.filter if found else TopicFilter()
        return wanted._replace(version=self._version)

    def subscription_of(self, topic: str) -> Subscription:
        """The subscription whose handler gets the messages of a topic.

        A retried message may belong to a topic that is no longer subscribed to: the first handler
        gets it, since it would be sent back for ever otherwise; that is logged once.
        """
        found = self._by_topic.get(topic)
        if found is None:
            first, found = next(iter(self._by_topic.items()))
            if topic not in self._unsubscribed and len(self._unsubscribed) < _UNSUBSCRIBED_MAX:
                self._unsubscribed.add(topic)
                log.warning(
                    "a message of %s, which this consumer does not subscribe, goes to the handler "
                    "of %s",
                    topic,
                    first,
                )
        return found

    def data(self) -> tuple[SubscriptionData, ...]:
        """All subscriptions as heartbeats carry them."""
        version = self._version
        own = [replace(found.data, sub_version=version) for found in self._by_topic.values()]
        retried = [SubscriptionData(topic=one, sub_version=version) for one in self._retry_topics]
        return (*own, *retried)


def _subscription(topic: str, selector: MessageSelector) -> tuple[SubscriptionData, TopicFilter]:
    wanted = filter_of(selector)
    text, kind = wanted.expression, wanted.expression_type
    if kind != TAG:
        return SubscriptionData(topic=topic, sub_string=text, expression_type=kind), wanted
    tags = split_expression(text)
    data = SubscriptionData(
        topic=topic,
        sub_string=text,
        tags_set=frozenset(tags),
        code_set=frozenset(java_hash(tag) for tag in tags),
    )
    return data, wanted
