"""Hot. The check of a pull: may this group read this queue, and which messages does it want?

RocketMQ's checks, in its order and with its codes. Reads neither the store nor the connection.
Java: PullMessageProcessor.processRequest (the part before getMessage).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.pulls.consumer_filters import filtering_disabled
from cometmq.errors import Reject
from cometmq.model.subscription import ALL, MessageModel
from cometmq.model.topic import is_retry_topic
from cometmq.rules import permission
from cometmq.rules.filters import tag_expressions
from cometmq.rules.filters.sql92_parser import LENGTH_MAX
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import pull as bits
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.pulls.consumer_filters import ConsumerFilters
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.model.subscription import SubscriptionData
    from cometmq.model.topic import TopicConfig
    from cometmq.rules.filters.tag_expressions import TagMatcher
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.property_filter import PropertyFilter
    from cometmq.wire.headers.pull import PullMessageRequestHeader


class ForbiddenType(IntEnum):
    """What forbids a read; sent to the client with NO_PERMISSION."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


class PullForbidden(Reject):
    """NO_PERMISSION, with the number that says what forbids the read."""

    def __init__(self, forbidden_type: ForbiddenType, remark: str) -> None:
        self.forbidden_type = forbidden_type
        super().__init__(ResponseCode.NO_PERMISSION, remark)


class MessageFilter(NamedTuple):
    """Which messages a reader wants: by their tags code, then by their properties.

    `new_property_filter` is called for each read, so that a held pull keeps no filter alive.
    Java: MessageFilter.
    """

    matches_tags_code: TagMatcher | None = None
    new_property_filter: Callable[[], PropertyFilter] | None = None


class ReadPlan(NamedTuple):
    """A pull that passed the check: its topic, its group, and the messages it wants."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    message_filter: MessageFilter


_EVERYTHING = MessageFilter()
_KEPT_CHARS_MAX = 512


class PullCheck:
    """Checks the header of a pull."""

    def __init__(
        self,
        topics: Topics,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        filters: ConsumerFilters,
        settings: BrokerSettings,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        self.adjust(settings)

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings
        self._is_broker_readable = permission.is_readable(settings.broker_permission)

    def check(self, header: PullMessageRequestHeader, code: int) -> ReadPlan:
        """Return what to read for a pull with this request code.

        Raises Reject, and ExpressionNotParsed for a long filter that must be parsed first.
        """
        if not self._is_broker_readable:
            raise PullForbidden(
                ForbiddenType.BROKER_FORBIDDEN, "this broker does not let anyone read"
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not self._settings.lite_pull_message_enable:
            raise PullForbidden(
                ForbiddenType.BROKER_FORBIDDEN, "this broker does not let lite pull consumers read"
            )
        name = header.consumer_group
        group = self._groups.table.get(name) or self._groups.admit(name)
        if not group.consume_enable:
            raise PullForbidden(
                ForbiddenType.GROUP_FORBIDDEN, f"the group {header.consumer_group} may not consume"
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {header.topic} does not exist on this broker; create it or send to it",
            )
        if not permission.is_readable(topic.perm):
            raise PullForbidden(
                ForbiddenType.TOPIC_FORBIDDEN, f"the topic {header.topic} may not be read"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"queue {header.queue_id} of {header.topic} does not exist; "
                f"there are {topic.read_queue_nums}, counted from 0",
            )
        # Java: PullSysFlag.hasSubscriptionFlag; the header itself holds the subscription.
        if header.sys_flag & bits.SUBSCRIPTION:
            return ReadPlan(topic, group, self._inline_filter(header))
        return ReadPlan(topic, group, self._subscribed_filter(header, group))

    def _inline_filter(self, header: PullMessageRequestHeader) -> MessageFilter:
        kind, expression = header.expression_type, header.subscription
        if expression and len(expression) > LENGTH_MAX:
            raise _not_parsed(f"it has more than {LENGTH_MAX} characters")
        if tag_expressions.is_tag_type(kind):
            return new_tags_filter(expression or ALL)
        if not expression:
            raise _not_parsed("it is empty")
        self._require_filtering(kind)
        if self._filters.parsed(expression, kind) is None:
            raise _not_parsed(f"it is no {kind}")
        return MessageFilter(
            new_property_filter=partial(self._filters.property_filter, expression, kind)
        )

    def _subscribed_filter(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> MessageFilter:
        name, topic = header.consumer_group, header.topic
        group = self._clients.consumers.get(name)
        if group is None:
            raise Reject(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of the group {name} is known"
            )
        if group.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enable:
            raise PullForbidden(
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
                f"the group {name} may not consume by broadcasting",
            )
        if self._groups.is_forbidden(name, topic):
            raise PullForbidden(
                ForbiddenType.SUBSCRIPTION_FORBIDDEN,
                f"the group {name} may not read the topic {topic}",
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise Reject(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the group {name} has not subscribed the topic {topic}",
            )
        if subscription.sub_version < header.sub_version:
            raise Reject(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the newest subscription of {topic} by {name} has not arrived here yet",
            )
        if tag_expressions.is_tag_type(subscription.expression_type):
            return _tags_codes_filter(subscription)
        return self._expression_filter(header, subscription)

    def _expression_filter(
        self, header: PullMessageRequestHeader, subscription: SubscriptionData
    ) -> MessageFilter:
        name, topic = header.consumer_group, header.topic
        found = self._filters.get(topic, name)
        if found is None:
            raise Reject(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"no filter of {name} on {topic} is known; your expression may be wrong",
            )
        if found.client_version < header.sub_version:
            raise Reject(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the newest filter of {topic} by {name} has not arrived here yet",
            )
        self._require_filtering(subscription.expression_type)
        if subscription.class_filter_mode:
            return _EVERYTHING
        if is_retry_topic(topic) and self._settings.filter_support_retry:
            return MessageFilter(new_property_filter=partial(self._filters.retry_filter, name))
        return MessageFilter(
            new_property_filter=partial(
                self._filters.property_filter, found.expression, found.expression_type
            )
        )

    def _require_filtering(self, kind: str | None) -> None:
        if not self._settings.enable_property_filter:
            raise filtering_disabled(kind)


def new_tags_filter(expression: str) -> MessageFilter:
    """The filter for an expression of tags; raises Reject. Short ones are kept."""
    is_long = len(expression) > _KEPT_CHARS_MAX
    return (_tags_filter.__wrapped__ if is_long else _tags_filter)(expression)


@lru_cache(maxsize=1024)
def _tags_filter(expression: str) -> MessageFilter:
    if expression == ALL:
        return _EVERYTHING
    if not expression.strip("|") and len(expression) % 2 == 0:
        raise _not_parsed("it names no tag")
    codes = frozenset(java_hash(tag) for tag in tag_expressions.split_expression(expression))
    return MessageFilter(codes.__contains__)


def _tags_codes_filter(subscription: SubscriptionData) -> MessageFilter:
    if subscription.class_filter_mode or subscription.sub_string in ("", ALL):
        return _EVERYTHING
    return MessageFilter(subscription.code_set.__contains__)


def _not_parsed(why: str) -> Reject:
    return Reject(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {why}"
    )
