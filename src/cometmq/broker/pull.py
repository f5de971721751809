"""Hot. PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361): read a queue, or park until something comes.

Owns the checks of a reader, in RocketMQ's order and with its codes, and the answer's header, which
clients need with 0, 19, 20 and 21 alike. Refuses to know files and sockets.
Invariant: a parked request is answered by running the whole check again, with waiting disabled.
Java: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from cometmq.broker.outcome import CODE_OF_GET
from cometmq.errors import Reject
from cometmq.model.subscription import MessageModel
from cometmq.net.edge import PARKED, Reply
from cometmq.rules import permission, tags
from cometmq.store.results import GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame import encode_frame
from cometmq.wire.headers import pull as bits
from cometmq.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.clients import Clients
    from cometmq.broker.groups import Groups
    from cometmq.broker.holds import Holds
    from cometmq.broker.offsets import Offsets
    from cometmq.broker.stats import Stats
    from cometmq.broker.topics import Topics
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.model.topic import TopicConfig
    from cometmq.net.edge import Parked
    from cometmq.net.peer import Peer
    from cometmq.rules.tags import Match
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

SUSPEND_MS_MAX = 5 * 60_000
"""Longest a pull may wait, whatever it asks for."""

_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCAST, _BY_SUBSCRIPTION = 1, 2, 3, 4, 5
_NOT_FOUND, _MOVED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
_ANSWER = (
    b'{"code":%d,"extFields":{"groupSysFlag":"%d","maxOffset":"%d","minOffset":"%d",'
    b'"nextBeginOffset":"%d","suggestWhichBrokerId":"0","topicSysFlag":"%d"},"flag":1,'
    b'"language":"PYTHON","opaque":%d,"remark":"%b","serializeTypeCurrentRPC":"JSON","version":479}'
)
_REMARKS = {status: status.name.encode() for status in GetStatus}


class Forbidden(Reject):
    """NO_PERMISSION, with the number that says who forbids (Java: ForbiddenType)."""

    def __init__(self, forbidden_type: int, remark: str) -> None:
        self.forbidden_type = forbidden_type
        super().__init__(ResponseCode.NO_PERMISSION, remark)


class PullHandler:
    """Answers 11 and 361."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        holds: Holds,
        stats: Stats,
        settings: BrokerSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._clients, self._offsets, self._holds = clients, offsets, holds
        self._stats, self._settings, self._now_ms = stats, settings, now_ms
        self._count_max = settings.max_transfer_count_on_message_in_memory
        self._bytes_max = settings.max_transfer_bytes_on_message_in_memory

    def __call__(self, request: Command, peer: Peer) -> Reply | bytes | Parked:
        """Answer with records, or with where to go on, or park the request."""
        header = PullMessageRequestHeader.decode(request.ext)
        return self._answer(header, request, peer, may_park=True)

    def _answer(
        self, header: PullMessageRequestHeader, request: Command, peer: Peer, *, may_park: bool
    ) -> Reply | bytes | Parked:
        try:
            topic, group, match = self._admit(header)
        except Reject as refusal:
            return _refused(refusal)
        name, queue_id, offset = header.topic, header.queue_id, header.queue_offset
        if may_park and header.sys_flag & bits.COMMIT_OFFSET:
            # before the reset is taken: until then, what a consumer commits is of its old place
            self._offsets.commit(header.consumer_group, name, queue_id, header.commit_offset)
        reset = self._offsets.take_reset(header.consumer_group, name, queue_id)
        if reset is not None:
            store = self._store
            ends = reset, store.min_offset(name, queue_id), store.max_offset(name, queue_id)
            return _encode(request.opaque, _MOVED, b"OFFSET_RESET", ends, topic, group, b"")
        begun_ms = self._now_ms()
        got = self._store.get(
            name,
            queue_id,
            offset,
            max(1, min(header.max_msg_nums, self._count_max)),
            self._bytes_max if header.max_msg_bytes is None else self._bytes_of(header),
            match,
        )
        status = got.status
        code = CODE_OF_GET[status]
        if status is GetStatus.NO_MESSAGE_IN_QUEUE and offset != 0:
            code = _MOVED
        if code == _NOT_FOUND and may_park and header.sys_flag & bits.SUSPEND:
            return self._park(header, request, peer, match)
        if status is GetStatus.FOUND:
            spent_ms = self._now_ms() - begun_ms
            self._stats.got(
                header.consumer_group, name, queue_id, got.count, len(got.body), spent_ms
            )
        self._offsets.note_pull(header.consumer_group, name, queue_id, got.next_offset)
        ends = got.next_offset, got.min_offset, got.max_offset
        return _encode(request.opaque, code, _REMARKS[status], ends, topic, group, got.body)

    def _bytes_of(self, header: PullMessageRequestHeader) -> int:
        return max(100, min(header.max_msg_bytes or 0, self._bytes_max))

    def _park(
        self, header: PullMessageRequestHeader, request: Command, peer: Peer, match: Match | None
    ) -> Parked:
        settings = self._settings
        timeout_ms = (
            min(header.suspend_timeout_ms, SUSPEND_MS_MAX)
            if settings.long_polling_enable
            else settings.short_polling_time_ms
        )

        def again() -> Reply | bytes:
            answer = self._answer(header, request, peer, may_park=False)
            assert isinstance(answer, Reply | bytes), "waiting is disabled"
            return answer

        self._holds.park(
            header.topic,
            header.queue_id,
            header.queue_offset,
            match,
            request,
            peer,
            again,
            timeout_ms,
        )
        return PARKED

    def _admit(
        self, header: PullMessageRequestHeader
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, Match | None]:
        if not permission.is_readable(self._settings.broker_permission):
            raise Forbidden(_BY_BROKER, "this broker does not let anyone read")
        group = self._groups.admit(header.consumer_group)
        if not group.consume_enable:
            raise Forbidden(_BY_GROUP, f"the group {header.consumer_group} may not consume")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {header.topic} does not exist on this broker; create it or send to it",
            )
        if not permission.is_readable(topic.perm):
            raise Forbidden(_BY_TOPIC, f"the topic {header.topic} may not be read")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"queue {header.queue_id} of {header.topic} does not exist; "
                f"there are {topic.read_queue_nums}, counted from 0",
            )
        if header.sys_flag & bits.SUBSCRIPTION:
            return topic, group, _inline_match(header.subscription, header.expression_type)
        return topic, group, self._subscribed_match(header, group)

    def _subscribed_match(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> Match | None:
        name, topic = header.consumer_group, header.topic
        group = self._clients.consumers.get(name)
        if group is None:
            raise Reject(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of the group {name} is known"
            )
        if group.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enable:
            raise Forbidden(_BY_BROADCAST, f"the group {name} may not consume by broadcasting")
        if self._groups.is_forbidden(name, topic):
            raise Forbidden(_BY_SUBSCRIPTION, f"the group {name} may not read the topic {topic}")
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
        if not tags.is_tag_type(subscription.expression_type):
            raise _no_sql()
        return tags.matcher(subscription.code_set)


@lru_cache(maxsize=1024)
def _inline_match(expression: str | None, expression_type: str | None) -> Match | None:
    if not tags.is_tag_type(expression_type):
        raise _no_sql()
    return tags.matcher(java_hash(tag) for tag in tags.split_expression(expression))


def _no_sql() -> Reject:
    return Reject(
        ResponseCode.SYSTEM_ERROR, "this broker does not filter by SQL92; subscribe with tags"
    )


def _refused(refusal: Reject) -> Reply:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=0,
        min_offset=0,
        max_offset=0,
        forbidden_type=refusal.forbidden_type if isinstance(refusal, Forbidden) else None,
    )
    return Reply(refusal.code, header, remark=refusal.remark)


def _encode(
    opaque: int,
    code: int,
    remark: bytes,
    ends: tuple[int, int, int],
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    body: bytes,
) -> bytes:
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
    return encode_frame(header, body)
