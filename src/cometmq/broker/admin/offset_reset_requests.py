"""Moving groups: reset (222), as another group (314), and the least offsets of all (308).

Refuses to keep state. A reset is the broker's own (the next pull of a queue gets its new offset)
or, where `useServerSideResetOffset` is off, one that the connected consumers are asked for (220).
Java: AdminBrokerProcessor (resetOffset, cloneGroupOffset, queryCorrectionOffset), Broker2Client.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.admin.topic_requests import no_topic
from cometmq.broker.groups.consumer_groups import missing
from cometmq.errors import Reject
from cometmq.model.queue import MessageQueue
from cometmq.net.endpoint import Endpoint, RequestEffect, header_resources
from cometmq.net.handler import Reply
from cometmq.wire import fastjson
from cometmq.wire.bodies.broker import encode_correction_offsets
from cometmq.wire.bodies.offset import encode_reset_offset, reset_offset_entry
from cometmq.wire.codes import LanguageCode, ResponseCode
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import admin as headers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.broker.pulls.pull_long_polling import HeldPulls
    from cometmq.broker.requests.large_tables import LargeTableAnswers
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

_AT_ONCE = 500
"""Offsets that are set in one iteration of the loop."""

_ASKED_SINCE = 28
"""Clients of this version and later move when they are asked to."""

_AHEAD = 0x7FFFFFFFFFFFFFFF
"""What Java answers for a queue in which the compared group is behind all others."""


class OffsetResetRequests:
    """Answers requests that move groups."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        offsets: ConsumerOffsets,
        held_pulls: HeldPulls,
        settings: BrokerSettings,
        large_tables: LargeTableAnswers,
    ) -> None:
        self._large_tables = large_tables
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._held_pulls = held_pulls
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(Code.INVOKE_BROKER_TO_RESET_OFFSET, self.reset_group, RequestEffect.MUTATING),
            Endpoint(
                Code.CLONE_GROUP_OFFSET,
                self.clone_group,
                RequestEffect.MUTATING,
                resources=header_resources(groups=("srcGroup", "destGroup")),
            ),
            Endpoint(
                Code.QUERY_CORRECTION_OFFSET,
                self.least_offsets,
                resources=header_resources(groups=("compareGroup",)),
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    async def reset_group(self, request: Command, _connection: Connection) -> Reply:
        """Move a group in one queue or in all (222)."""
        header = headers.ResetOffsetRequestHeader.decode(request.ext)
        config = self._topics.get(header.topic)
        if config is None:
            raise no_topic(header.topic)
        if self._settings.use_server_side_reset_offset:
            return await self._reset_here(header, config)
        is_cpp = request.language == LanguageCode.CPP
        return await self._reset_there(header, config, as_list=is_cpp)

    async def clone_group(self, request: Command, _connection: Connection) -> Reply:
        """Let one group be where another is (314); what that one has not subscribed stays out."""
        header = headers.CloneGroupOffsetRequestHeader.decode(request.ext)
        offsets, source = self._offsets, header.src_group
        topics = [header.topic] if header.topic else offsets.topics_of(source)
        live = self._clients.consumers.get(source)
        subscribed = live.subscriptions if live and not header.offline else {}
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or (subscribed and topic not in subscribed):
                continue
            queues = range(max(config.read_queue_nums, config.write_queue_nums))
            for number, (queue_id, offset) in enumerate(offsets.queues_of(source, topic).items()):
                if queue_id in queues:
                    offsets.commit(header.dest_group, topic, queue_id, offset)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        return Reply()

    async def least_offsets(self, request: Command, _connection: Connection) -> Reply:
        """Return the least offset of each queue over all groups but some (308).

        A queue in which the compared group is behind that gets the largest number there is.
        """
        header = headers.QueryCorrectionOffsetHeader.decode(request.ext)
        topic, offsets = header.topic, self._offsets
        left_out = set((header.filter_groups or "").split(","))
        groups = [group for group in offsets.groups_of(topic) if group not in left_out]
        slices, begins, least = self._large_tables.time_slices, dict[int, int](), dict[int, int]()
        async with slices.lock:
            await slices.collect(begins.update(offsets.queues_of(each, topic)) for each in groups)
        ordered = sorted(begins)
        first = await self._store.cold_reader.run_each(
            ordered, lambda context, queue_id: context.min_offset(topic, queue_id)
        )
        begins.update(zip(ordered, first, strict=True))
        async with slices.lock:
            await slices.collect(self._take_least(topic, groups, begins, least))
        for queue_id, offset in offsets.queues_of(header.compare_group, topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = _AHEAD
        entries = (fastjson.dumps({queue_id: least[queue_id]})[1:-1] for queue_id in sorted(least))
        empty = encode_correction_offsets({})
        return Reply(body=await self._large_tables.fill("correctionOffsets", empty, entries))

    def _take_least(
        self, topic: str, groups: list[str], begins: dict[int, int], least: dict[int, int]
    ) -> Iterator[None]:
        """Note the least offset of each queue, a group's offset with each step."""
        for group in groups:
            for queue_id, offset in self._offsets.queues_of(group, topic).items():
                if offset >= begins.get(queue_id, 0):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
                yield

    async def _reset_here(
        self, header: headers.ResetOffsetRequestHeader, config: TopicConfig
    ) -> Reply:
        topic, group = header.topic, header.group
        if self._groups.get(group) is None:
            raise missing(group)
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            check = partial(self._checked, topic, header.queue_id, header.offset)
            targets = {header.queue_id: await self._store.cold_reader.run(check)}
        else:
            queues = range(config.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
            targets = await self._at_time(queues, header)
        if not targets:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"the topic {topic} has no queue to reset")
        for number, (queue_id, offset) in enumerate(targets.items(), 1):
            if not self._offsets.reset(group, topic, queue_id, offset):
                raise Reject(
                    ResponseCode.SYSTEM_ERROR,
                    f"queue {queue_id} of {topic} is not reset, nor those behind it: this broker "
                    "keeps no more offsets; delete groups or topics that nobody uses",
                )
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self._held_pulls.wake_topic(topic)
        entries = (
            reset_offset_entry(self._queue(topic, queue_id), offset)
            for queue_id, offset in targets.items()
        )
        return Reply(
            body=await self._large_tables.fill(
                "offsetTable", encode_reset_offset({}), entries, count=len(targets)
            )
        )

    async def _reset_there(
        self, header: headers.ResetOffsetRequestHeader, config: TopicConfig, *, as_list: bool
    ) -> Reply:
        topic, group = header.topic, header.group
        moved: dict[MessageQueue, int] = {}
        targets = await self._at_time(range(config.write_queue_nums), header)
        for queue_id, target in targets.items():
            now = self._offsets.committed(group, topic, queue_id)
            if now < 0:
                raise Reject(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {group} has no offset for queue {queue_id} of {topic}",
                )
            is_taken = header.is_force or target < now
            moved[self._queue(topic, queue_id)] = target if is_taken else now
        consumers = self._clients.consumers.get(group)
        if consumers is None:
            raise Reject(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"no consumer of the group {group} is connected, so {topic} cannot be reset",
            )
        old = [
            member
            for connection, member in consumers.members.items()
            if connection.version < _ASKED_SINCE
        ]
        if old:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"the consumer {old[0].client_id} is too old to be reset"
            )
        asked = headers.ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=header.timestamp
        )
        body = encode_reset_offset(moved, as_list=as_list)
        for connection in consumers.members:
            code = Code.RESET_CONSUMER_CLIENT_OFFSET
            connection.oneway(new_request(code, 0, asked, body, oneway=True))
        return Reply(body=encode_reset_offset(moved))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)

    def _checked(self, topic: str, queue_id: int, offset: int, context: ReadContext) -> int:
        first = context.min_offset(topic, queue_id)
        end = context.max_offset(topic, queue_id)
        if not first <= offset <= end + 1:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{first}-{end}]",
            )
        return offset

    async def _at_time(
        self, queues: Collection[int], header: headers.ResetOffsetRequestHeader
    ) -> dict[int, int]:
        """The offset of each queue at the time asked for."""
        topic, at_ms = header.topic, header.timestamp

        def read(context: ReadContext, queue_id: int) -> int:
            if at_ms < 0:
                return context.max_offset(topic, queue_id)
            return context.offset_by_time(topic, queue_id, at_ms)

        offsets = await self._store.cold_reader.run_each(queues, read)
        return dict(zip(queues, offsets, strict=True))
