"""Hot. PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361): read a queue, or hold until a message comes.

Owns the checks of a reader, in RocketMQ's order and with its codes, and the answer's header, which
clients need with 0, 19, 20 and 21 alike. Refuses to know files and sockets.
Invariant: a held request is answered by running the whole check again, with holding disabled.
Java: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.messages.status_codes import GET_STATUS_CODES
from cometmq.errors import Reject
from cometmq.model.subscription import ALL, MessageModel
from cometmq.model.topic import is_retry_topic
from cometmq.net.connection import JOINED_BYTES_MAX
from cometmq.net.endpoint import Effect, Endpoint
from cometmq.net.handler import HELD, Held, Reply, SplitFrame
from cometmq.rules import permission, tag_expressions
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.results import GetStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame import encode_frame, encode_head
from cometmq.wire.headers import pull as bits
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.broker.messages.consumer_filters import ConsumerFilters
    from cometmq.broker.messages.held_requests import HeldRequests
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.model.subscription import SubscriptionData
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Answer, HandlerResult
    from cometmq.rules.tag_expressions import TagMatcher
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.store.results import GetResult, PropertyFilter
    from cometmq.wire.command import Command

SUSPEND_MS_MAX = 5 * 60_000
"""Longest a pull may wait, whatever it asks for."""

_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCAST, _BY_SUBSCRIPTION = 1, 2, 3, 4, 5
_NOT_FOUND, _MOVED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
_ANSWER = (
    b'{"code":%d,"extFields":{"groupSysFlag":"%d","maxOffset":"%d","minOffset":"%d",'
    b'"nextBeginOffset":"%d","suggestWhichBrokerId":"0","topicSysFlag":"%d"},"flag":1,'
    b'"language":"PYTHON","opaque":%b,"remark":"%b","serializeTypeCurrentRPC":"JSON","version":479}'
)
_FETCHES_MAX = 20
"""How often what a pull needs is fetched; after that it may wait for the disk on the loop."""
_REMARKS = {status: status.name.encode() for status in GetStatus}


class PullForbidden(Reject):
    """NO_PERMISSION, with the number that says who forbids (Java: ForbiddenType)."""

    def __init__(self, forbidden_type: int, remark: str) -> None:
        self.forbidden_type = forbidden_type
        super().__init__(ResponseCode.NO_PERMISSION, remark)


class MessageFilter(NamedTuple):
    """Which messages a reader wants: by their tags code, then by their properties.

    `judge` is made anew for each read, so that a held pull keeps no filter alive.
    """

    match: TagMatcher | None = None
    judge: Callable[[], PropertyFilter] | None = None


_EVERYTHING = MessageFilter()


class PullHandler:
    """Answers 11 and 361."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        held_requests: HeldRequests,
        stats: BrokerStats,
        settings: BrokerSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._clients, self._filters = clients, filters
        self._offsets, self._held_requests = offsets, held_requests
        self._stats, self._now_ms = stats, now_ms
        self._again = self._run_again  # one object for all held requests
        self.adjust(settings)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.PULL_MESSAGE, self, Effect.MUTATING),
            Endpoint(RequestCode.LITE_PULL_MESSAGE, self, Effect.MUTATING),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings
        self._count_max = settings.max_transfer_count_on_message_in_memory
        self._bytes_max = settings.max_transfer_bytes_on_message_in_memory

    def __call__(
        self, request: Command, connection: Connection
    ) -> HandlerResult | Awaitable[HandlerResult]:
        """Answer with records or with the offset to go on from, or hold the request.

        What is not in memory is fetched first, off the loop; then all is looked at again.
        """
        header = PullMessageRequestHeader.decode(request.ext)
        try:
            return self._answer(header, request, connection, may_hold=True)
        except NotInMemory as missing:
            return self._answer_later(header, request, connection, missing)

    async def _answer_later(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        missing: NotInMemory,
    ) -> HandlerResult:
        for _ in range(_FETCHES_MAX):
            await self._store.cold_reader.fetch(missing)
            if connection.is_closed:
                return Reply()  # to nobody, and nothing more is read for it
            try:
                return self._answer(header, request, connection, may_hold=True, is_repeated=True)
            except NotInMemory as more:
                missing = more
        try:
            return self._answer(header, request, connection, may_hold=False, may_stop=True)
        except NotInMemory:
            return self._answer(header, request, connection, may_hold=False)

    def _answer(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        *,
        may_hold: bool,
        is_repeated: bool = False,
        may_stop: bool = False,
    ) -> HandlerResult:
        """Read and answer. Where it may hold, NotInMemory says what must be fetched first.

        `may_stop`: likewise, but a filter has what it has asked about when it meets such a message.
        """
        try:
            topic, group, message_filter = self._admit(header, request.code)
        except Reject as refusal:
            return _refused(refusal)
        name, queue_id, offset = header.topic, header.queue_id, header.queue_offset
        opaque = b"%d" % request.opaque
        if may_hold and not is_repeated and header.sys_flag & bits.COMMIT_OFFSET:
            # before the reset is taken: until then, what a consumer commits is of its old place
            self._offsets.commit(header.consumer_group, name, queue_id, header.commit_offset)
        reset = self._offsets.take_reset(header.consumer_group, name, queue_id)
        if reset is not None:
            store = self._store
            ends = reset, store.min_offset(name, queue_id), store.max_offset(name, queue_id)
            return _encode(opaque, _MOVED, b"OFFSET_RESET", ends, topic, group, b"")
        begun_ms, judge = self._now_ms(), message_filter.judge and message_filter.judge()
        if judge and may_stop:
            judge = judge._replace(may_stop=True)
        read = self._reading(header, message_filter, judge)
        got = self._store.cold_reader.read_cached(read) if may_hold or may_stop else read()
        status = got.status
        code = GET_STATUS_CODES[status]
        if status is not GetStatus.FOUND:
            self._stats.empty_pulls.count += 1
        if status is GetStatus.NO_MESSAGE_IN_QUEUE and offset != 0:
            code = _MOVED
        if code == _NOT_FOUND and may_hold and header.sys_flag & bits.SUSPEND:
            return self._hold(header, request, connection, message_filter)
        if status is GetStatus.FOUND:
            spent_ms = self._now_ms() - begun_ms
            self._stats.count_get(
                header.consumer_group, name, queue_id, got.count, len(got.body), spent_ms
            )
        self._offsets.note_pull(header.consumer_group, name, queue_id, got.next_offset)
        ends = got.next_offset, got.min_offset, got.max_offset
        return _encode(opaque, code, _REMARKS[status], ends, topic, group, got.body)

    def at_once(
        self, header: PullMessageRequestHeader, code: int, opaque: bytes
    ) -> bytes | SplitFrame | None:
        """Answer with messages that are in memory; None: nothing was done, use the slow path.

        The opaque in digits. `header` is not kept.
        """
        group, name, queue_id = header.consumer_group, header.topic, header.queue_id
        offset, store = header.queue_offset, self._store
        if offset >= store.max_offset(name, queue_id) or self._offsets.has_resets:
            return None
        begun_ms = self._now_ms()
        try:
            topic, config, message_filter = self._admit(header, code)
            if message_filter.judge is not None:
                return None
            read = self._reading(header, message_filter, None)
            status, next_offset, min_offset, max_offset, body, count = (
                store.cold_reader.read_cached(read)
            )
        except (Reject, NotInMemory, OSError):
            return None
        if status is not GetStatus.FOUND:
            return None
        if header.sys_flag & bits.COMMIT_OFFSET:
            self._offsets.commit(group, name, queue_id, header.commit_offset)
        self._stats.count_get(group, name, queue_id, count, len(body), self._now_ms() - begun_ms)
        self._offsets.note_pull(group, name, queue_id, next_offset)
        ends = next_offset, min_offset, max_offset
        return _encode(opaque, 0, b"FOUND", ends, topic, config, body)

    def _reading(
        self,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter,
        judge: PropertyFilter | None,
    ) -> Callable[[], GetResult]:
        return partial(
            self._store.get,
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(1, min(header.max_msg_nums, self._count_max)),
            self._bytes_max if header.max_msg_bytes is None else self._bytes_of(header),
            message_filter.match,
            judge,
        )

    def _bytes_of(self, header: PullMessageRequestHeader) -> int:
        return max(100, min(header.max_msg_bytes or 0, self._bytes_max))

    def _hold(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        message_filter: MessageFilter,
    ) -> Held:
        settings = self._settings
        timeout_ms = (
            min(header.suspend_timeout_ms, SUSPEND_MS_MAX)
            if settings.long_polling_enable
            else settings.short_polling_time_ms
        )
        self._held_requests.hold(
            header,
            request,
            connection,
            self._again,
            timeout_ms,
            message_filter.match,
            message_filter.judge and ArrivalFilter(self._store, header, message_filter.judge),
        )
        return HELD

    def _run_again(
        self, header: PullMessageRequestHeader, request: Command, connection: Connection
    ) -> Answer:
        answer = self._answer(header, request, connection, may_hold=False)
        assert not isinstance(answer, Held), "waiting is disabled"
        return answer

    def _admit(
        self, header: PullMessageRequestHeader, code: int
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, MessageFilter]:
        if not permission.is_readable(self._settings.broker_permission):
            raise PullForbidden(_BY_BROKER, "this broker does not let anyone read")
        if code == RequestCode.LITE_PULL_MESSAGE and not self._settings.lite_pull_message_enable:
            raise PullForbidden(_BY_BROKER, "this broker does not let lite pull consumers read")
        group = self._groups.admit(header.consumer_group)
        if not group.consume_enable:
            raise PullForbidden(_BY_GROUP, f"the group {header.consumer_group} may not consume")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {header.topic} does not exist on this broker; create it or send to it",
            )
        if not permission.is_readable(topic.perm):
            raise PullForbidden(_BY_TOPIC, f"the topic {header.topic} may not be read")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"queue {header.queue_id} of {header.topic} does not exist; "
                f"there are {topic.read_queue_nums}, counted from 0",
            )
        if header.sys_flag & bits.SUBSCRIPTION:
            return topic, group, self._inline(header)
        return topic, group, self._subscribed(header, group)

    def _inline(self, header: PullMessageRequestHeader) -> MessageFilter:
        kind, expression = header.expression_type, header.subscription
        if tag_expressions.is_tag_type(kind):
            return _by_tags(expression or ALL)
        if not expression:
            raise _not_parsed("it is empty")
        self._require_filtering(kind)
        if self._filters.ready(expression, kind) is None:
            raise _not_parsed(f"it is no {kind}")
        return MessageFilter(judge=partial(self._filters.judge, expression, kind))

    def _subscribed(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> MessageFilter:
        name, topic = header.consumer_group, header.topic
        group = self._clients.consumers.get(name)
        if group is None:
            raise Reject(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of the group {name} is known"
            )
        if group.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enable:
            raise PullForbidden(_BY_BROADCAST, f"the group {name} may not consume by broadcasting")
        if self._groups.is_forbidden(name, topic):
            raise PullForbidden(
                _BY_SUBSCRIPTION, f"the group {name} may not read the topic {topic}"
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
            return _by_codes(subscription)
        return self._by_filter(header, subscription)

    def _by_filter(
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
            return MessageFilter(judge=partial(self._filters.judge_of_retries, name))
        return MessageFilter(
            judge=partial(self._filters.judge, found.expression, found.expression_type)
        )

    def _require_filtering(self, kind: str | None) -> None:
        if not self._settings.enable_property_filter:
            raise filtering_disabled(kind)


class ArrivalFilter:
    """Says whether a held pull wants any message that arrived; each message is checked once."""

    __slots__ = ("_judge", "_queue_id", "_seen", "_store", "_topic")

    def __init__(
        self,
        store: MessageStore,
        header: PullMessageRequestHeader,
        judge: Callable[[], PropertyFilter],
    ) -> None:
        self._store, self._judge = store, judge
        self._topic, self._queue_id = header.topic, header.queue_id
        self._seen = header.queue_offset

    def __call__(self, end: int) -> bool:
        """Whether a message from where the last call ended up to `end` is, or may be, wanted."""
        start, self._seen = self._seen, end
        got = self._store.get(self._topic, self._queue_id, start, 1, 1, None, self._judge())
        return got.status is GetStatus.FOUND or got.next_offset < end


@lru_cache(maxsize=1024)
def _by_tags(expression: str) -> MessageFilter:
    if expression == ALL:
        return _EVERYTHING
    if not expression.strip("|") and len(expression) % 2 == 0:
        raise _not_parsed("it names no tag")
    codes = frozenset(java_hash(tag) for tag in tag_expressions.split_expression(expression))
    return MessageFilter(codes.__contains__)


def _by_codes(subscription: SubscriptionData) -> MessageFilter:
    if subscription.class_filter_mode or subscription.sub_string in ("", ALL):
        return _EVERYTHING
    return MessageFilter(subscription.code_set.__contains__)


def filtering_disabled(kind: str | None) -> Reject:
    """The refusal of a filter while enablePropertyFilter is off."""
    return Reject(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind}",
    )


def _not_parsed(why: str) -> Reject:
    return Reject(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {why}"
    )


def _refused(refusal: Reject) -> Reply:
    ext = (
        {"forbiddenType": str(refusal.forbidden_type)}
        if isinstance(refusal, PullForbidden)
        else None
    )
    return Reply(refusal.code, remark=refusal.remark, ext=ext)


def _encode(
    opaque: bytes,
    code: int,
    remark: bytes,
    ends: tuple[int, int, int],
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    body: bytes,
) -> bytes | SplitFrame:
    next_offset, min_offset, max_offset = ends
    header = _ANSWER % (
        code,
        group.group_sys_flag,
        max_offset,
        min_offset,
        next_offset,
        topic.topic_sys_flag,
        opaque,
        remark,
    )
    if len(body) > JOINED_BYTES_MAX:
        return SplitFrame(encode_head(header, len(body)), body)
    return encode_frame(header, body)
