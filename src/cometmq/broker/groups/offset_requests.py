"""Requests for offsets: those of a group (14, 15) and those of a queue (29-32).

Checks the request, and decides what to answer where there is no offset. Keeps no state.
Java: ConsumerManageProcessor, AdminBrokerProcessor (getMaxOffset and its like).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.groups.consumer_groups import missing
from cometmq.errors import Reject
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import offset as headers

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.net.connection import Connection
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command


class OffsetRequestHandler:
    """Answers 14, 15, 29, 30, 31 and 32."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        offsets: ConsumerOffsets,
        fresh_bytes: int,
    ) -> None:
        """`fresh_bytes`: how much of the log's end counts as being in memory."""
        self._store = store
        self._cold_reader = store.cold_reader
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._fresh_bytes = fresh_bytes

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.QUERY_CONSUMER_OFFSET, self.query),
            Endpoint(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                self.update,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
            ),
            Endpoint(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search),
            Endpoint(RequestCode.GET_MAX_OFFSET, self.max_offset, RequestEffect.UNTHROTTLED),
            Endpoint(RequestCode.GET_MIN_OFFSET, self.min_offset),
            Endpoint(RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest_time),
        )

    def query(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Answer a group's committed offset (14).

        A group without one gets the end of a queue that holds no message, lest it miss those that
        come before its next question; else 0 while the queue still holds its first message in
        memory, and QUERY_NOT_FOUND otherwise: the client then starts where its settings say.
        """
        header = headers.QueryConsumerOffsetRequestHeader.decode(request.ext)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.committed(header.consumer_group, topic, queue_id)
        if offset >= 0:
            return Reply(header=headers.QueryConsumerOffsetResponseHeader(offset=offset))
        not_found = Reject(
            ResponseCode.QUERY_NOT_FOUND,
            f"the group {header.consumer_group} has no offset for queue {queue_id} of {topic}",
        )
        if header.set_zero_if_not_found is False or not self._is_queue(topic, queue_id):
            raise not_found

        def answer(start: int | None) -> Reply:
            if start is None:
                raise not_found
            return Reply(header=headers.QueryConsumerOffsetResponseHeader(offset=start))

        return self._cold_reader.prepare_and_apply(
            partial(self._start_of_new_group, topic, queue_id), answer
        )

    def update(self, request: Command, _connection: Connection) -> Reply:
        """Commit a group's offset (15)."""
        header = headers.UpdateConsumerOffsetRequestHeader.decode(request.ext)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if self._groups.get(group) is None:
            raise missing(group)
        config = self._topics.get(topic)
        if config is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist on this broker"
            )
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues or header.commit_offset < 0:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"offset {header.commit_offset} of queue {queue_id} of {topic} cannot be committed",
            )
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        return Reply()

    def search(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Answer the offset at a store time (29)."""
        header = headers.SearchOffsetRequestHeader.decode(request.ext)
        is_upper = header.boundary_type.upper() == "UPPER"

        def read(context: ReadContext) -> int:
            return context.offset_by_time(
                header.topic, header.queue_id, header.timestamp, upper=is_upper
            )

        return self._cold_reader.prepare_and_apply(
            read, lambda offset: Reply(header=headers.SearchOffsetResponseHeader(offset=offset))
        )

    def max_offset(self, request: Command, _connection: Connection) -> Reply:
        """Answer the offset after the queue's last message (30)."""
        header = headers.GetMaxOffsetRequestHeader.decode(request.ext)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return Reply(header=headers.GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Answer the offset of the queue's first message (31)."""
        header = headers.GetMinOffsetRequestHeader.decode(request.ext)
        return self._cold_reader.prepare_and_apply(
            lambda context: context.min_offset(header.topic, header.queue_id),
            lambda offset: Reply(header=headers.GetMinOffsetResponseHeader(offset=offset)),
        )

    def earliest_time(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Answer when the queue's first message was stored (32); -1 for an empty queue."""
        header = headers.GetEarliestMsgStoretimeRequestHeader.decode(request.ext)
        topic, queue_id = header.topic, header.queue_id

        def read(context: ReadContext) -> int:
            return context.store_time(topic, queue_id, context.min_offset(topic, queue_id))

        def answer(stored_ms: int) -> Reply:
            return Reply(header=headers.GetEarliestMsgStoretimeResponseHeader(timestamp=stored_ms))

        return self._cold_reader.prepare_and_apply(read, answer)

    def _is_queue(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums

    def _start_of_new_group(self, topic: str, queue_id: int, context: ReadContext) -> int | None:
        """Where a group without an offset starts whatever its settings say; None: nowhere."""
        end = context.max_offset(topic, queue_id)
        if context.min_offset(topic, queue_id) >= end:
            return end
        first = context.entry(topic, queue_id, 0)
        if first is None or context.min_offset(topic, queue_id) > 0:
            return None
        is_in_memory = self._store.max_phy_offset - first[0] <= self._fresh_bytes
        return 0 if is_in_memory else None
