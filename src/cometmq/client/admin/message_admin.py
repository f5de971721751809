"""AsyncMessageAdmin: single messages, found by id, key, place or time.

It uses only requests that every RocketMQ broker answers. Java: DefaultMQAdminExt
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.admin.group_admin import AsyncGroupAdmin
from cometmq.client.admin.group_positions import GroupPositions
from cometmq.client.admin.message_reader import MessageReader
from cometmq.client.admin.nearest_name import nearest
from cometmq.client.session.argument_checks import (
    INT64_MAX,
    check_flag,
    check_name,
    check_queue,
    check_wait,
    check_whole,
)
from cometmq.client.session.client_options import check_type
from cometmq.errors import ClientError, MessageNotFound
from cometmq.model.group import TOOLS_GROUP
from cometmq.model.message import MessageExt
from cometmq.model.topic import DLQ_PREFIX, TRACE_TOPIC, is_dlq_topic
from cometmq.wire.bodies.trace import decode_trace

if TYPE_CHECKING:
    from cometmq.model.admin_stats import ConsumeMessageDirectlyResult
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import PullResult
    from cometmq.model.trace_event import TraceEvent

_COUNT_MAX = 10_000
_TRACES_MAX = 64
"""Messages of the trace topic that are read for one trace; brokers return no more by default."""


class AsyncMessageAdmin(AsyncGroupAdmin):
    """The part of an admin that is about messages."""

    async def message(self, topic: str, msg_id: str) -> MessageExt:
        """A message by the id its producer gave it, or by its offset id.

        Raises MessageNotFound, also for up to a second after it was sent: brokers index later.
        """
        check_type("msg_id", msg_id, str, "a text")
        addrs = await self._route_addrs(topic)
        reader = self._reader()
        placed = await reader.by_place(msg_id, (await self.clusters()).broker_addr_table.values())
        if placed is not None and placed.topic == topic:
            return placed
        found = await reader.lookup(
            topic, msg_id, addrs, begin_ms=0, end_ms=INT64_MAX, max_count=32, is_id=True
        )
        if not found:
            raise MessageNotFound(
                f"no message of the topic {topic} has the id {msg_id}: look for its key, or for "
                "the time at which it was sent"
            )
        return found[-1]

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue. Raises MessageNotFound, RouteNotFound."""
        check_queue("queue", queue)
        check_whole("offset", offset, 0, INT64_MAX)
        await self._require_queue(queue)
        result = await self._reader().pull(queue, offset, 1)
        if not result.messages or result.messages[0].queue_offset != offset:
            raise MessageNotFound(
                f"{queue} has no message at {offset}; its offsets are {result.min_offset} to "
                f"{result.max_offset - 1}"
            )
        return result.messages[0]

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = INT64_MAX,
        max_count: int = 64,
    ) -> list[MessageExt]:
        """The messages of a topic with a key, stored between two times (ms since 1970).

        Oldest first; of more than `max_count` a broker finds the newest. Brokers have a limit of
        their own, `maxQueryNum` or 64.
        """
        check_name(topic)
        check_type("key", key, str, "a text")
        check_whole("begin_ms", begin_ms, 0, INT64_MAX)
        check_whole("end_ms", end_ms, begin_ms, INT64_MAX)
        check_whole("max_count", max_count, 1, _COUNT_MAX)
        addrs = await self._route_addrs(topic)
        return await self._reader().lookup(
            topic, key, addrs, begin_ms=begin_ms, end_ms=end_ms, max_count=max_count, is_id=False
        )

    async def messages_by_time(
        self, topic: str, begin_ms: int, end_ms: int, *, max_count: int = 64
    ) -> list[MessageExt]:
        """The first messages of a topic stored from one time up to another, ms since 1970.

        In order of their store times, of all queues together.
        """
        check_name(topic)
        check_whole("begin_ms", begin_ms, 0, INT64_MAX)
        check_whole("end_ms", end_ms, begin_ms, INT64_MAX)
        check_whole("max_count", max_count, 1, _COUNT_MAX)
        begins = await self.offsets_at(topic, begin_ms)
        bounds = await self.topic_stats(topic)
        ranges = {
            queue: (begin, min(bounds[queue].max_offset, begin + max_count))
            for queue, begin in begins.items()
            if queue in bounds
        }
        found = await self._reader().read_each(ranges)
        return [one for one in found if begin_ms <= one.store_ms < end_ms][:max_count]

    async def offsets_at(self, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """The offset in each queue of the first message stored at a time or later.

        The time is ms since 1970; where none is so young, it is the offset of the next message.
        """
        check_name(topic)
        check_whole("at_ms", at_ms, 0, INT64_MAX)
        positions = GroupPositions(self._running(), TOOLS_GROUP)
        return await positions.at_time(await self.queues(topic), at_ms)

    async def peek(
        self,
        topic: str,
        max_count: int = 10,
        *,
        oldest: bool = False,
        queue: MessageQueue | None = None,
    ) -> list[MessageExt]:
        """The newest messages of a topic or of one queue, or the oldest, by their store times.

        Nobody's offsets move.
        """
        check_whole("max_count", max_count, 1, _COUNT_MAX)
        check_flag("oldest", oldest)
        check_name(topic)
        if queue is not None:
            await self._require_queue(queue)
        ranges: dict[MessageQueue, tuple[int, int]] = {}
        for one, bound in (await self.topic_stats(topic)).items():
            first, end = bound.min_offset, bound.max_offset
            if queue in (None, one):
                near = (first, first + max_count) if oldest else (end - max_count, end)
                ranges[one] = max(first, near[0]), min(end, near[1])
        found = await self._reader().read_each(ranges)
        return found[:max_count] if oldest else found[-max_count:]

    async def pull(
        self, queue: MessageQueue, offset: int, max_count: int = 32, *, block_s: float = 0.0
    ) -> PullResult:
        """Pull a queue once from an offset on; nobody's offsets move.

        With `block_s` (at most 30) the broker waits so long for a message.
        """
        check_whole("offset", offset, 0, INT64_MAX)
        check_whole("max_count", max_count, 1, 1024)
        check_wait("block_s", block_s, 30.0)
        await self._require_queue(queue)
        return await self._reader().pull(queue, offset, max_count, block_s)

    async def dead_letters(self) -> dict[str, int | None]:
        """How many dead letters each group has, by group; groups that never had one are left out.

        None where the topic %DLQ%group may not be read, as old brokers make it: then alter its
        permission. `peek` shows them.
        """
        found: dict[str, int | None] = {}
        for topic in await self.topics(with_system=True):
            if is_dlq_topic(topic):
                group = topic.removeprefix(DLQ_PREFIX)
                found[group] = None
                if await self._running().routes.subscribe_queues(topic):
                    bounds = (await self.topic_stats(topic)).values()
                    found[group] = sum(one.max_offset - one.min_offset for one in bounds)
        return found

    async def message_trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC
    ) -> list[TraceEvent]:
        """What producers and consumers with a trace recorded of a message, in order of time.

        Records come up to five seconds late. Raises RouteNotFound without a trace topic.
        """
        check_type("msg_id", msg_id, str, "a text")
        found = await self.messages_by_key(trace_topic, msg_id, max_count=_TRACES_MAX)
        events = {
            event
            for message in found
            for event in decode_trace(message.body)
            if event.msg_id == msg_id
        }
        return sorted(events, key=lambda event: (event.at_ms, event.kind != "handling"))

    async def hand_to_member(
        self, group: str, message: MessageExt, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a member of a group handle a stored message now, the first or the one named.

        No offset moves, and a failure is not retried. Raises GroupNotFound, ClientError without
        such a member, BrokerError when it does not answer in time.
        """
        check_type("message", message, MessageExt, "a message as it was received")
        check_type("client_id", client_id, str | None, "a text")
        members = (await self.group_members(group, running=False)).members
        names = [member.connection.client_id for member in members]
        if client_id is None and names:
            client_id = names[0]
        if client_id is None or client_id not in names:
            near = nearest(client_id or "", names)
            who = f"{client_id} is no member" if client_id else "there is no member"
            raise ClientError(f"{who} of the group {group} that could handle the message{near}")
        addr = (await self.broker_addrs([message.broker_name]))[message.broker_name]
        return await self._reader().hand_over(message, group, client_id, addr)

    async def _route_addrs(self, topic: str) -> dict[str, str]:
        """The masters that have a topic, by broker name. Raises RouteNotFound."""
        route = await self.topic_route(topic)
        return {data.broker_name: data.master for data in route.broker_datas if data.master}

    async def _require_queue(self, queue: MessageQueue) -> None:
        check_queue("queue", queue)
        known = await self.queues(queue.topic)
        if queue not in known:
            brokers = ", ".join(sorted({one.broker_name for one in known}))
            raise ClientError(
                f"{queue} is no readable queue; the topic has {len(known)} queues on {brokers}"
            )

    def _reader(self) -> MessageReader:
        return MessageReader(self._running())
