"""Clients' heartbeat, unregistration, filter check and list of group members (34, 35, 38, 46).

A heartbeat first makes the group and its retry topic, then notes the members, then is answered.
The state is in `client_registry`.
Java: ClientManageProcessor, ConsumerManageProcessor.getConsumerListByGroup.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from cometmq.broker.pulls.consumer_filters import LONG_CHARS, filtering_disabled
from cometmq.errors import BadFilter, ProtocolError, Reject
from cometmq.model.subscription import CLIENT_ID_CHARS_MAX, SQL92, MessageModel
from cometmq.model.topic import SUBSCRIBED_BY_UNIT, retry_topic_of
from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
from cometmq.net.handler import Reply
from cometmq.rules.filters import sql92_parser, tag_expressions
from cometmq.wire.bodies.heartbeat import decode_check_client, decode_heartbeat
from cometmq.wire.bodies.name_lists import encode_consumer_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request as new_request
from cometmq.wire.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.broker.groups.unequal_members import UnequalMembers
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.pulls.consumer_filters import ConsumerFilters
    from cometmq.model.subscription import ConsumerData, HeartbeatData
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.wire.command import Command

HEARTBEAT_BYTES_MAX = 1 << 20
"""Longest heartbeat: subscriptions may name many tags."""

LONG_HEARTBEAT_BYTES = 1 << 13
"""Longer heartbeats are parsed in a thread; parsing takes a microsecond for four bytes."""

CHECK_BYTES_MAX = 1 << 17
"""Longest question whether a filter is one: 16,384 characters, however they are written."""

GROUPS_MAX, SUBSCRIPTIONS_MAX = 1_000, 2_000
"""Groups that one heartbeat may name, and subscriptions of all of them."""

NOTIFIED_AT_ONCE_MAX = 32
"""Members that one change notifies at once, 1 ms; of more so many in an iteration of the loop."""

_SLICE = 16
"""Groups of a long heartbeat taken in one loop iteration."""

GROUP_CHARS_MAX = 255
"""Longest name of a producer's group, as Java's clients have it."""


def _decoded(body: bytes) -> HeartbeatData:
    if len(body) > HEARTBEAT_BYTES_MAX:
        raise Reject(
            ResponseCode.SYSTEM_ERROR,
            f"the heartbeat has {len(body)} bytes, the limit is {HEARTBEAT_BYTES_MAX}",
        )
    try:
        beat = decode_heartbeat(body)
    except ProtocolError as error:
        raise Reject(ResponseCode.SYSTEM_ERROR, f"no heartbeat: {error}") from error
    _check_names(beat)
    groups = len(beat.consumers) + len(beat.producer_groups)
    subscriptions = sum([len(consumer.subscriptions) for consumer in beat.consumers])
    for what, count, most in (
        ("groups", groups, GROUPS_MAX),
        ("subscriptions", subscriptions, SUBSCRIPTIONS_MAX),
    ):
        if count > most:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"the heartbeat names {count} {what}, the limit is {most}; spread them over more "
                "clients",
            )
    return beat


def _check_names(beat: HeartbeatData) -> None:
    """Raise Reject for names longer than any: they would be kept."""
    named = [*beat.producer_groups, *(consumer.group_name for consumer in beat.consumers)]
    for what, longest, most in (
        ("client id", len(beat.client_id), CLIENT_ID_CHARS_MAX),
        ("group", max(map(len, named), default=0), GROUP_CHARS_MAX),
    ):
        if longest > most:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"the heartbeat names a {what} of {longest} characters, the limit is {most}",
            )


def _check_filter(kind: str, expression: str) -> None:
    """Raise Reject for what is no filter."""
    try:
        if kind != SQL92:
            raise BadFilter(f"{kind} is no kind of filter that this broker knows", 0)
        sql92_parser.parse(expression)
    except BadFilter as error:
        raise Reject(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


def _answer(beat: HeartbeatData, refused: list[str], *, is_new: bool) -> Reply:
    if refused:
        raise Reject(
            ResponseCode.INVALID_PARAMETER,
            f"members of a group must want the same (rejectUnequalSubscriptions); not admitted "
            f"to {'; '.join(refused)}",
        )
    is_new |= not beat.heartbeat_fingerprint
    return Reply(
        header=HeartbeatResponseHeader(is_support_heart_beat_v2=True, is_sub_change=is_new)
    )


class HeartbeatHandler:
    """Answers 34, 35, 38 and 46; notifies members of a change (40)."""

    def __init__(
        self,
        clients: ClientRegistry,
        topics: Topics,
        groups: ConsumerGroups,
        filters: ConsumerFilters,
        locks: QueueLocks,
        unequal: UnequalMembers,
        stats: BrokerStats,
        settings: BrokerSettings,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._locks = locks
        self._unequal = unequal
        self._stats = stats
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._parsing = asyncio.Lock()
        self._to_notify: OrderedDict[str, deque[Connection]] = OrderedDict()
        """Large groups with those of their members that are still to be notified of a change."""
        self._changed: set[str] = set()
        """Those of them that changed since these members were noted."""
        clients.on_members = self.notify_members
        clients.on_gone = filters.unregister

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.HEART_BEAT,
                self.heartbeat,
                RequestEffect.MUTATING | RequestEffect.CREATING | RequestEffect.UNTHROTTLED,
                resources=_resources_of_heartbeat,
                resources_bytes_max=LONG_HEARTBEAT_BYTES,
            ),
            Endpoint(
                RequestCode.UNREGISTER_CLIENT,
                self.unregister,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
            ),
            Endpoint(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                self.consumer_list,
                RequestEffect.UNTHROTTLED,
            ),
            Endpoint(
                RequestCode.CHECK_CLIENT_CONFIG,
                self.check_client,
                resources=_resources_of_check,
                body_bytes_max=CHECK_BYTES_MAX,
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def heartbeat(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Note the client in all its groups. A long heartbeat is parsed in a thread, one at a time.

        Raises Reject for a broken one, and for one of more than `HEARTBEAT_BYTES_MAX`.
        """
        if LONG_HEARTBEAT_BYTES < len(request.body) <= HEARTBEAT_BYTES_MAX:
            return self._register_long(request.body, connection)
        return self._register(_decoded(request.body), connection)

    async def _register_long(self, body: bytes, connection: Connection) -> Reply:
        async with self._parsing:
            beat = await asyncio.to_thread(_decoded, body)
            is_new, refused = False, list[str]()
            for index, is_group_new in enumerate(self._register_each(beat, connection, refused)):
                is_new |= is_group_new
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                if connection.is_closed:
                    return Reply()
        return _answer(beat, refused, is_new=is_new)

    def _register(self, beat: HeartbeatData, connection: Connection) -> Reply:
        refused = list[str]()
        news = list(self._register_each(beat, connection, refused))
        return _answer(beat, refused, is_new=any(news))

    def _register_each(
        self, beat: HeartbeatData, connection: Connection, refused: list[str]
    ) -> Iterator[bool]:
        """Register one group a step; yields whether its subscriptions are new.

        What a refused group's members differ in is added to `refused`.
        """
        is_light = beat.without_sub
        for consumer in beat.consumers:
            began = self._monotonic_ms()
            if not self._prepare(consumer):
                continue
            problem = (
                "" if is_light else self._unequal.compare(consumer, beat.client_id, connection)
            )
            if problem and self._settings.reject_unequal_subscriptions:
                refused.append(f"{consumer.group_name}: {problem}")
                continue
            is_new = self._clients.is_fingerprint_new(
                consumer.group_name, beat.heartbeat_fingerprint, is_light=is_light
            )
            self._clients.add_consumer(
                consumer,
                beat.client_id,
                connection,
                fingerprint=beat.heartbeat_fingerprint,
                keep_subscriptions=is_light,
            )
            if not is_light:
                self._filters.register(consumer.group_name, consumer.subscriptions)
            self._stats.count_registration(is_producer=False, spent_ms=self._monotonic_ms() - began)
            yield is_new
        for group in beat.producer_groups:
            began = self._monotonic_ms()
            self._clients.add_producer(group, beat.client_id, connection)
            self._stats.count_registration(is_producer=True, spent_ms=self._monotonic_ms() - began)
            yield False

    def unregister(self, request: Command, connection: Connection) -> Reply:
        """Remove the connection from a producer group, a consumer group, or both.

        A consumer that leaves has no queue locks any more.
        """
        header = UnregisterClientRequestHeader.decode(request.ext)
        if header.producer_group:
            self._clients.remove("producer", header.producer_group, connection)
        if header.consumer_group:
            self._clients.remove("consumer", header.consumer_group, connection)
            self._locks.leave(header.consumer_group, connection)
        return Reply()

    def consumer_list(self, request: Command, _connection: Connection) -> Reply:
        """Answer the client ids of a group."""
        name = GetConsumerListByGroupRequestHeader.decode(request.ext).consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return Reply(body=encode_consumer_list(group.client_ids()))

    def check_client(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Answer whether a subscription is valid; a long filter is parsed in a thread."""
        wanted = decode_check_client(request.body).subscription
        kind = wanted.expression_type
        if tag_expressions.is_tag_type(kind):
            return Reply()
        if not self._settings.enable_property_filter:
            raise filtering_disabled(kind)
        if len(wanted.sub_string) > LONG_CHARS:
            return self._check_long(kind, wanted.sub_string)
        _check_filter(kind, wanted.sub_string)
        return Reply()

    async def _check_long(self, kind: str, expression: str) -> Reply:
        async with self._parsing:
            await asyncio.to_thread(_check_filter, kind, expression)
        return Reply()

    def notify_members(self, group: str) -> None:
        """Ask all members of a group to rebalance (40), the newest included."""
        members = self._clients.consumers.get(group)
        config = self._groups.get(group)
        if members is None or not self._settings.notify_consumer_ids_changed_enable:
            return
        if config and not config.notify_consumer_ids_changed_enable:
            return
        if members.message_model is MessageModel.BROADCASTING:
            return
        if len(members.members) > NOTIFIED_AT_ONCE_MAX:
            self._notify_soon(group)
        else:
            _notify(group, members.members)

    def _notify_soon(self, group: str) -> None:
        """Notify a large group in the next iterations of the loop, once for all that changed."""
        if not self._to_notify:
            asyncio.get_running_loop().call_soon(self._notify_some)
        self._to_notify.setdefault(group, deque())
        self._changed.add(group)

    def _notify_some(self) -> None:
        """Notify some members of the group whose turn it is; it goes to the end then."""
        group, rest = self._to_notify.popitem(last=False)
        if not rest and group in self._changed:
            self._changed.discard(group)
            known = self._clients.consumers.get(group)
            rest.extend(known.members if known else ())
        _notify(group, [rest.popleft() for _ in range(min(NOTIFIED_AT_ONCE_MAX, len(rest)))])
        if rest or group in self._changed:
            self._to_notify[group] = rest
        if self._to_notify:
            asyncio.get_running_loop().call_soon(self._notify_some)

    def _prepare(self, consumer: ConsumerData) -> bool:
        """Create the group and its retry topic; False where the group may not be created."""
        try:
            config = self._groups.admit(consumer.group_name)
        except Reject:
            return False
        topic = retry_topic_of(consumer.group_name)
        if self._topics.get(topic) is None and config.retry_queue_nums > 0:
            order = any(
                found.order
                for sub in consumer.subscriptions
                if (found := self._topics.get(sub.topic)) is not None
            )
            flag = SUBSCRIBED_BY_UNIT if consumer.unit_mode else 0
            self._topics.ensure(topic, config.retry_queue_nums, order=order, sys_flag=flag)
        return True


def _notify(group: str, members: Iterable[Connection]) -> None:
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    for member in members:
        member.oneway(new_request(code, 0, header, oneway=True))


def _resources_of_heartbeat(request: Command) -> RequestResources:
    beat = _decoded(request.body)
    topics = [each.topic for consumer in beat.consumers for each in consumer.subscriptions]
    groups = [consumer.group_name for consumer in beat.consumers]
    return RequestResources(
        tuple(dict.fromkeys(topics)), tuple(dict.fromkeys(groups)), tuple(beat.producer_groups)
    )


def _resources_of_check(request: Command) -> RequestResources:
    wanted = decode_check_client(request.body)
    return RequestResources((wanted.subscription.topic,), (wanted.group,))
