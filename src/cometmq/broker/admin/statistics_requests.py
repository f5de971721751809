"""Figures of the broker (315), the contents of its queues (321), and cleaning up (306, 329).

Refuses to keep state; what is counted is in `metrics/broker_stats`, what lies on disk in the store.
Java: AdminBrokerProcessor (ViewBrokerStatsData, queryConsumeQueue, cleanUnusedTopic and its like).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire.bodies.broker import (
    QueueContents,
    encode_broker_figures,
    encode_queue_contents,
)
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.admin import (
    QueryConsumeQueueRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)

if TYPE_CHECKING:
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.net.connection import Connection
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

ENTRIES_MAX = 1_000
"""Most queue entries in one answer."""


class StatisticsRequests:
    """Answers requests about figures and queues."""

    def __init__(
        self, store: MessageStore, topics: Topics, clients: ClientRegistry, stats: BrokerStats
    ) -> None:
        self._store = store
        self._topics = topics
        self._clients = clients
        self._stats = stats

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(Code.VIEW_BROKER_STATS_DATA, self.figures),
            Endpoint(Code.QUERY_CONSUME_QUEUE, self.queue_contents),
            Endpoint(Code.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean, RequestEffect.MUTATING),
            Endpoint(Code.DELETE_EXPIRED_COMMITLOG, self.clean, RequestEffect.MUTATING),
        )

    def figures(self, request: Command, _connection: Connection) -> Reply:
        """Tell what a counter counted in the last minute, hour and day (315)."""
        header = ViewBrokerStatsDataRequestHeader.decode(request.ext)
        found = self._stats.figures(header.stats_name, header.stats_key)
        if found is None:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return Reply(body=encode_broker_figures(found.minute, found.hour, found.day))

    async def queue_contents(self, request: Command, _connection: Connection) -> Reply:
        """Tell entries of a consume queue (321); beyond its ends a remark says so instead."""
        header = QueryConsumeQueueRequestHeader.decode(request.ext)
        topic, queue_id, index = header.topic, header.queue_id, header.index
        store, group = self._store, header.consumer_group
        first = await store.cold_reader.run(lambda context: context.min_offset(topic, queue_id))
        end = store.max_offset(topic, queue_id)
        if not end:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not first <= index < end:
            return Reply(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        stop = min(end, index + min(header.count, ENTRIES_MAX))
        entries = await store.cold_reader.run_each(
            range(index, stop), lambda context, at: context.entry(topic, queue_id, at)
        )
        found = QueueContents([entry for entry in entries if entry], first, end)
        if group is not None:
            consumers = self._clients.consumers.get(group)
            subscription = consumers.subscriptions.get(topic) if consumers else None
            filter_data = "null" if subscription else f"{group}@{topic} is not online!"
            found = found._replace(subscription=subscription, filter_data=filter_data)
        return Reply(body=encode_queue_contents(found))

    async def clean(self, _request: Command, _connection: Connection) -> Reply:
        """Delete files that are old enough whatever the hour is (306, 329).

        Queues stay, also empty ones: their offsets go on where they were.
        """
        try:
            await self._store.clean()
        except OSError as error:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"old files cannot be deleted: {error}"
            ) from error
        return Reply()
