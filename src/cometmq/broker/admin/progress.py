"""How far groups have come: statistics (202, 208, 300, 303, 343), all offsets (43), resets (222).

Refuses to keep state. Queues are those the topic lets clients see.
Java: AdminBrokerProcessor (getTopicStatsInfo, getConsumeStats, resetOffset and their like).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.admin.topics import no_topic
from cometmq.broker.groups import missing
from cometmq.errors import Reject
from cometmq.model.queue import MessageQueue
from cometmq.model.stats import ConsumeStats, OffsetWrapper, QueueTimeSpan, TopicOffset
from cometmq.net.edge import Reply
from cometmq.wire.bodies.admin import encode_consume_stats, encode_time_spans, encode_topic_stats
from cometmq.wire.bodies.lists import encode_group_list, encode_topic_list
from cometmq.wire.bodies.offset import encode_consumer_offsets, encode_reset_offset
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers import admin as headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.broker.clients import Clients
    from cometmq.broker.groups import Groups
    from cometmq.broker.holds import Holds
    from cometmq.broker.offsets import Offsets
    from cometmq.broker.stats import Stats
    from cometmq.broker.topics import Topics
    from cometmq.model.topic import TopicConfig
    from cometmq.net.edge import Handler
    from cometmq.net.peer import Peer
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command


class ProgressRequests:
    """Answers requests about progress."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        holds: Holds,
        stats: Stats,
        broker_name: str,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._clients, self._offsets, self._holds = clients, offsets, holds
        self._stats, self._broker_name = stats, broker_name

    def table(self) -> Mapping[int, Handler]:
        """The codes this file answers."""
        return {
            Code.GET_TOPIC_STATS_INFO: self.topic_stats,
            Code.GET_CONSUME_STATS: self.consume_stats,
            Code.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
            Code.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            Code.QUERY_CONSUME_TIME_SPAN: self.time_spans,
            Code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            Code.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
        }

    def topic_stats(self, request: Command, _peer: Peer) -> Reply:
        """Tell what each queue of a topic holds (202)."""
        topic = headers.GetTopicStatsInfoRequestHeader.decode(request.ext).topic
        config = self._topic(topic)
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        table = {
            self._queue(topic, queue_id): self._holds_of(topic, queue_id) for queue_id in queues
        }
        return Reply(body=encode_topic_stats(table, self._stats.topic_rate(topic)))

    def consume_stats(self, request: Command, _peer: Peer) -> Reply:
        """Tell how far a group has come in each queue of its topics (208)."""
        header = headers.GetConsumeStatsRequestHeader.decode(request.ext)
        group, rate = header.consumer_group, 0.0
        if header.topic:
            topics = [header.topic]
        elif header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = self._offsets.topics_of(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or self._is_foreign(group, topic):
                continue
            rate += self._stats.group_rate(group, topic)
            for queue_id in range(config.read_queue_nums):
                table[self._queue(topic, queue_id)] = self._progress(group, topic, queue_id)
        return Reply(body=encode_consume_stats(ConsumeStats(offset_table=table, consume_tps=rate)))

    def groups_of(self, request: Command, _peer: Peer) -> Reply:
        """Tell which groups read a topic: those that are connected and those that have offsets."""
        topic = headers.QueryTopicConsumeByWhoRequestHeader.decode(request.ext).topic
        groups = {
            name for name, group in self._clients.consumers.items() if topic in group.subscriptions
        }
        return Reply(body=encode_group_list(groups | set(self._offsets.groups_of(topic))))

    def topics_of(self, request: Command, _peer: Peer) -> Reply:
        """Tell which topics a group has offsets of (343)."""
        group = headers.QueryTopicsByConsumerRequestHeader.decode(request.ext).group
        return Reply(body=encode_topic_list(self._offsets.topics_of(group)))

    def time_spans(self, request: Command, _peer: Peer) -> Reply:
        """Tell from when to when each queue reaches, and how far behind the group is (303)."""
        header = headers.QueryConsumeTimeSpanRequestHeader.decode(request.ext)
        config = self._topic(header.topic)
        spans = [
            self._span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        return Reply(body=encode_time_spans(spans))

    def reset(self, request: Command, _peer: Peer) -> Reply:
        """Move a group in one queue or in all (222); its next pulls tell the consumers."""
        header = headers.ResetOffsetRequestHeader.decode(request.ext)
        topic, group = header.topic, header.group
        config = self._topic(topic)
        if self._groups.get(group) is None:
            raise missing(group)
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            targets = {header.queue_id: self._checked(topic, header.queue_id, header.offset)}
        else:
            queues = range(config.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
            targets = {queue_id: self._at_time(topic, queue_id, header) for queue_id in queues}
        for queue_id, offset in targets.items():
            self._offsets.reset(group, topic, queue_id, offset)
        self._holds.wake_topic(topic)
        moved = {self._queue(topic, queue_id): offset for queue_id, offset in targets.items()}
        return Reply(body=encode_reset_offset(moved))

    def all_offsets(self, _request: Command, _peer: Peer) -> Reply:
        """Tell all committed offsets (43)."""
        return Reply(body=encode_consumer_offsets(self._offsets.snapshot()))

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise no_topic(topic)
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker_name, queue_id)

    def _holds_of(self, topic: str, queue_id: int) -> TopicOffset:
        first = self._store.min_offset(topic, queue_id)
        end = self._store.max_offset(topic, queue_id)
        last_ms = self._store.store_time(topic, queue_id, end - 1) if end > first else 0
        return TopicOffset(min_offset=first, max_offset=end, last_update_timestamp=max(0, last_ms))

    def _is_foreign(self, group: str, topic: str) -> bool:
        """Whether a live group has subscribed other topics only, and no offset here either."""
        live = self._clients.consumers.get(group)
        return (
            live is not None
            and bool(live.subscriptions)
            and topic not in live.subscriptions
            and not self._offsets.queues_of(group, topic)
        )

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        done = max(0, self._offsets.committed(group, topic, queue_id))
        stored_ms = self._store.store_time(topic, queue_id, done - 1) if done > 0 else 0
        return OffsetWrapper(
            broker_offset=max(0, self._store.max_offset(topic, queue_id)),
            consumer_offset=done,
            pull_offset=max(0, self._offsets.pulled(group, topic, queue_id)),
            last_timestamp=max(0, stored_ms),
        )

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        done = self._offsets.committed(group, topic, queue_id)
        last_ms = store.store_time(topic, queue_id, end - 1) if end > first else -1
        done_ms = store.store_time(topic, queue_id, done - 1) if done > first else -1
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=store.store_time(topic, queue_id, first) if end > first else -1,
            max_time_stamp=last_ms,
            consume_time_stamp=done_ms,
            delay_time=max(0, last_ms - done_ms) if 0 <= done < end else 0,
        )

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        first = self._store.min_offset(topic, queue_id)
        end = self._store.max_offset(topic, queue_id)
        if not first <= offset <= end + 1:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"offset {offset} is not in queue {queue_id} of {topic}: {first} to {end}",
            )
        return offset

    def _at_time(self, topic: str, queue_id: int, header: headers.ResetOffsetRequestHeader) -> int:
        if header.timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, header.timestamp)
