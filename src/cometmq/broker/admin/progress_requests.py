"""How far groups have come: 202, 208, 300, 303, 317 and 343; all offsets (43, 45).

Refuses to keep state, and to hold up the loop with many queues or old messages. Queues are those
the topic lets clients see.
Java: AdminBrokerProcessor (getTopicStatsInfo, getConsumeStats and their like).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.admin.topic_requests import no_topic
from cometmq.broker.requests.large_tables import check_size, sorted_pieces
from cometmq.model.admin_stats import ConsumeStats, QueueProgress, QueueTimeSpan, TopicOffset
from cometmq.model.queue import MessageQueue
from cometmq.net.endpoint import Endpoint, RequestResources, header_resources
from cometmq.net.handler import Reply
from cometmq.wire import fastjson
from cometmq.wire.bodies.admin import (
    encode_consume_stats,
    encode_time_spans,
    encode_topic_stats,
    queue_progress_entry,
    time_span_entry,
    topic_offset_entry,
)
from cometmq.wire.bodies.broker import consume_stats_list_entry, encode_consume_stats_list
from cometmq.wire.bodies.name_lists import encode_group_list, encode_topic_list
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.headers import admin as headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.requests.large_tables import LargeTableAnswers
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command


_PAIRS_AT_ONCE = 4
"""Pairs of a group and a topic that one iteration of the loop looks at: each has some queues."""


class ProgressRequests:
    """Answers requests about progress."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        offsets: ConsumerOffsets,
        delayed_messages: DelayedMessages,
        stats: BrokerStats,
        large_tables: LargeTableAnswers,
        now_ms: Callable[[], int],
        broker_name: str,
        address: Callable[[], str],
    ) -> None:
        self._large_tables = large_tables
        self._telling_all = asyncio.Lock()
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._delayed_messages = delayed_messages
        self._stats = stats
        self._now_ms = now_ms
        self._broker_name = broker_name
        self._address = address

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(Code.GET_TOPIC_STATS_INFO, self.topic_stats),
            Endpoint(Code.GET_CONSUME_STATS, self.consume_stats, resources=_asked_progress),
            Endpoint(Code.QUERY_TOPIC_CONSUME_BY_WHO, self.groups_of),
            Endpoint(Code.QUERY_TOPICS_BY_CONSUMER, self.topics_of),
            Endpoint(Code.QUERY_CONSUME_TIME_SPAN, self.time_spans),
            Endpoint(Code.GET_BROKER_CONSUME_STATS, self.all_consume_stats),
            Endpoint(Code.GET_ALL_CONSUMER_OFFSET, self.all_offsets),
            Endpoint(Code.GET_ALL_DELAY_OFFSET, self.delay_offsets),
        )

    async def topic_stats(self, request: Command, _connection: Connection) -> Reply:
        """Tell what each queue of a topic holds (202)."""
        topic = headers.GetTopicStatsInfoRequestHeader.decode(request.ext).topic
        config = self._topic(topic)
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        held = await self._store.cold_reader.run_each(queues, partial(self._topic_offset, topic))
        rate = self._stats.topic_rate(topic)
        entries = (topic_offset_entry(self._queue(topic, at), one) for at, one in enumerate(held))
        return Reply(
            body=await self._large_tables.fill(
                "offsetTable", encode_topic_stats({}, rate), entries, count=len(held)
            )
        )

    async def consume_stats(self, request: Command, _connection: Connection) -> Reply:
        """Tell how far a group has come in each queue of its topics (208)."""
        header = headers.GetConsumeStatsRequestHeader.decode(request.ext)
        group, named = header.consumer_group, (header.topic_list or "").split(";")
        topics = [topic for topic in named if topic]
        if not topics:
            topics = [header.topic] if header.topic else self._offsets.topics_of(group)
            topics = [topic for topic in topics if not self._is_foreign(group, topic)]
        found: list[tuple[str, list[QueueProgress]]] = []
        rate = 0.0
        for number, topic in enumerate(topics, 1):
            config = self._topics.get(topic)
            if config is not None:
                rate += self._stats.group_rate(group, topic)
                queues = range(config.read_queue_nums)
                found.append((topic, await self._progress_of(group, topic, queues)))
            if number % _PAIRS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return Reply(body=await self._encoded(found, rate))

    async def all_consume_stats(self, request: Command, _connection: Connection) -> Reply:
        """Tell how far every group has come in each of its topics (317)."""
        header = headers.GetConsumeStatsInBrokerHeader.decode(request.ext)
        async with self._telling_all:
            groups, found = self._groups.table, dict[str, list[bytes]]()
            lag = in_flight = size = 0
            for number, (topic, group) in enumerate(self._offsets.each_pair(), 1):
                if number % _PAIRS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                config = self._topics.get(topic)
                if group not in groups or config is None or self._is_foreign(group, topic):
                    continue
                if header.is_order and not config.order:
                    continue
                queues = range(config.write_queue_nums)
                progress = await self._progress_of(group, topic, queues)
                rate = self._stats.group_rate(group, topic)
                stats = await self._encoded([(topic, progress)], rate)
                found.setdefault(group, []).append(stats)
                size += len(stats)
                check_size("progress of all groups", size)
                for one in progress:
                    lag += one.broker_offset - one.consumer_offset
                    in_flight += one.pull_offset - one.consumer_offset
            empty = encode_consume_stats_list(self._address(), {}, lag, in_flight)
            entries = (consume_stats_list_entry(name, found.get(name, ())) for name in list(groups))
            return Reply(body=await self._large_tables.fill("consumeStatsList", empty, entries))

    async def groups_of(self, request: Command, _connection: Connection) -> Reply:
        """Tell which groups read a topic: those that are connected and those that have offsets."""
        topic = headers.QueryTopicConsumeByWhoRequestHeader.decode(request.ext).topic
        slices = self._large_tables.time_slices
        async with slices.lock:
            live = await slices.collect(self._each_reader(topic))
        groups = {*filter(None, live), *self._offsets.groups_of(topic)}
        return Reply(body=await self._named("groupList", encode_group_list(()), groups))

    async def topics_of(self, request: Command, _connection: Connection) -> Reply:
        """Tell which topics a group has offsets of (343)."""
        group = headers.QueryTopicsByConsumerRequestHeader.decode(request.ext).group
        empty = encode_topic_list((), self._address())
        return Reply(body=await self._named("topicList", empty, self._offsets.topics_of(group)))

    def _each_reader(self, topic: str) -> Iterator[str]:
        """Each connected group that reads the topic; empty names for the others."""
        for name, group in list(self._clients.consumers.items()):
            yield name if topic in group.subscriptions else ""

    async def _named(self, field: str, empty: bytes, names: Iterable[str]) -> bytes:
        """The answer `empty` with these names in order."""
        slices = self._large_tables.time_slices
        async with slices.lock:
            ordered = await slices.collect(sorted_pieces(list(names)))
        entries = (fastjson.dumps(name) for name in ordered if name)
        return await self._large_tables.fill(field, empty, entries)

    async def _encoded(self, found: list[tuple[str, list[QueueProgress]]], rate: float) -> bytes:
        """A group's progress in the queues of topics, from the first one on (208)."""
        entries = (
            queue_progress_entry(self._queue(topic, at), one)
            for topic, progress in found
            for at, one in enumerate(progress)
        )
        empty = encode_consume_stats(ConsumeStats(offset_table={}, consume_tps=rate))
        count = sum(len(progress) for _, progress in found)
        return await self._large_tables.fill("offsetTable", empty, entries, count=count)

    async def time_spans(self, request: Command, _connection: Connection) -> Reply:
        """Tell from when to when each queue reaches, and how far behind the group is (303)."""
        header = headers.QueryConsumeTimeSpanRequestHeader.decode(request.ext)
        config = self._topic(header.topic)
        look = partial(self._span, header.group, header.topic)
        spans = await self._store.cold_reader.run_each(range(config.write_queue_nums), look)
        entries = (time_span_entry(span, _shown) for span in spans)
        return Reply(
            body=await self._large_tables.fill(
                "consumeTimeSpanSet", encode_time_spans((), _shown), entries, count=len(spans)
            )
        )

    async def all_offsets(self, _request: Command, _connection: Connection) -> Reply:
        """Tell all committed offsets (43), as they are in consumerOffset.json."""
        body = await self._offsets.encode_in_turns()
        check_size("table of offsets", len(body))
        return Reply(body=body)

    def delay_offsets(self, _request: Command, _connection: Connection) -> Reply:
        """Tell how far each delay level has been delivered (45), as in delayOffset.json."""
        return Reply(body=fastjson.dumps(self._delayed_messages.to_json()))

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise no_topic(topic)
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker_name, queue_id)

    def _topic_offset(self, topic: str, context: ReadContext, queue_id: int) -> TopicOffset:
        first = context.min_offset(topic, queue_id)
        end = context.max_offset(topic, queue_id)
        last_ms = context.store_time(topic, queue_id, end - 1) if end > first else 0
        return TopicOffset(min_offset=first, max_offset=end, last_update_timestamp=max(0, last_ms))

    def _is_foreign(self, group: str, topic: str) -> bool:
        """Whether the group is live and has subscribed other topics only."""
        live = self._clients.consumers.get(group)
        return live is not None and bool(live.subscriptions) and topic not in live.subscriptions

    async def _progress_of(self, group: str, topic: str, queues: range) -> list[QueueProgress]:
        return await self._store.cold_reader.run_each(queues, partial(self._progress, group, topic))

    def _progress(
        self, group: str, topic: str, context: ReadContext, queue_id: int
    ) -> QueueProgress:
        done = max(0, self._offsets.committed(group, topic, queue_id))
        stored_ms = context.store_time(topic, queue_id, done - 1) if done > 0 else 0
        return QueueProgress(
            broker_offset=max(0, context.max_offset(topic, queue_id)),
            consumer_offset=done,
            pull_offset=max(done, self._offsets.pulled(group, topic, queue_id)),
            last_timestamp=max(0, stored_ms),
        )

    def _span(self, group: str, topic: str, context: ReadContext, queue_id: int) -> QueueTimeSpan:
        first, end = context.min_offset(topic, queue_id), context.max_offset(topic, queue_id)
        done = self._offsets.committed(group, topic, queue_id)
        first_ms = context.store_time(topic, queue_id, first)
        next_ms = context.store_time(topic, queue_id, max(done, first)) if done < end else -1
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=context.store_time(topic, queue_id, end - 1),
            consume_time_stamp=context.store_time(topic, queue_id, done - 1)
            if done > 0
            else first_ms,
            delay_time=max(0, self._now_ms() - next_ms) if next_ms >= 0 else 0,
        )


def _shown(ms: int) -> str:
    """A time as people read it here, the way Java writes it in this answer."""
    seconds, rest = divmod(ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{rest:03}"


def _asked_progress(request: Command) -> RequestResources:
    found = header_resources()(request)
    several = request.ext.get("topicList", "").split(";")
    return found._replace(topics=(*found.topics, *filter(None, several)))
