"""What a consumer listens to: topics, expressions, handlers.

Owns the table from topic to handler and its form in heartbeats; refuses to know queues.
Invariant: the group's retry topic is always among the topics, and a message of it goes to the
handler of the topic it was first sent to.
Java: RebalanceImpl.subscriptionInner, FilterAPI
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.handlers import is_async
from cometmq.errors import ClientError
from cometmq.model.subscription import SubscriptionData
from cometmq.model.topic import retry_topic_of
from cometmq.rules.tags import split_expression
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from cometmq.client.handlers import Handler


class Subscription(NamedTuple):
    """One topic's filter and handler."""

    data: SubscriptionData
    tags: frozenset[bytes]
    handler: Handler
    is_async: bool


class Subscriptions:
    """All subscriptions of one consumer, fixed once it has started."""

    def __init__(self, group: str) -> None:
        self.retry_topic = retry_topic_of(group)
        self._by_topic: dict[str, Subscription] = {}
        self._version = 0

    def add(self, topic: str, expression: str, handler: Handler) -> None:
        """Let `handler` have the messages of `topic` whose tag the expression names."""
        tags = split_expression(expression)
        data = SubscriptionData(
            topic=topic,
            sub_string=" || ".join(tags) or "*",
            tags_set=frozenset(tags),
            code_set=frozenset(java_hash(tag) for tag in tags),
        )
        found = frozenset(tag.encode() for tag in tags)
        self._by_topic[topic] = Subscription(data, found, handler, is_async(handler))

    def fix(self, version_ms: int) -> None:
        """Give the subscriptions their version; raises ClientError when there is none."""
        if not self._by_topic:
            raise ClientError("this consumer listens to nothing: call subscribe before start")
        self._version = version_ms

    @property
    def version(self) -> int:
        """The version that heartbeats and pulls carry, ms."""
        return self._version

    @property
    def topics(self) -> list[str]:
        """The topics to share out, the retry topic included."""
        return [*self._by_topic, self.retry_topic]

    def tags_of(self, topic: str) -> frozenset[bytes]:
        """The tags wanted of a topic; empty means all."""
        found = self._by_topic.get(topic)
        return found.tags if found else frozenset()

    def handler_of(self, topic: str) -> Subscription:
        """Who gets the messages of a topic.

        A retried message may belong to a topic that is no longer listened to: the first handler
        gets it, since returning it again and again would help nobody.
        """
        found = self._by_topic.get(topic)
        return found or next(iter(self._by_topic.values()))

    def data(self) -> tuple[SubscriptionData, ...]:
        """All subscriptions as heartbeats carry them."""
        version = self._version
        own = [_versioned(found.data, version) for found in self._by_topic.values()]
        return (*own, SubscriptionData(topic=self.retry_topic, sub_version=version))


def _versioned(data: SubscriptionData, version: int) -> SubscriptionData:
    return SubscriptionData(
        topic=data.topic,
        sub_string=data.sub_string,
        tags_set=data.tags_set,
        code_set=data.code_set,
        sub_version=version,
    )
