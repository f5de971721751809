"""How far each group is behind in each of its topics, in one pass over the committed offsets.

Owns the sums over queues. Refuses to know labels and who asks; reads as admin answers do, without
holding up the loop. Java: ConsumerLagCalculator, which leaves out groups without members.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore

_PAIRS_AT_ONCE = 4
"""Pairs of a group and a topic that one iteration of the loop looks at: each has some queues."""
_NEVER = 1 << 62


class GroupProgress(NamedTuple):
    """Where one group is in one topic: messages, and store times in ms (0: there is none)."""

    group: str
    topic: str
    lag: int
    in_flight: int
    ready: int
    undone_ms: int
    """When the oldest message was stored that the group has not done."""
    unpulled_ms: int
    """When the oldest message was stored that it has not pulled."""


class _QueueProgress(NamedTuple):
    end: int
    done: int
    pulled: int
    undone_ms: int
    unpulled_ms: int


class GroupProgressReader:
    """Reads the progress of all groups. Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        offsets: ConsumerOffsets,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets

    async def each(self) -> AsyncIterator[GroupProgress]:
        """Each group of this broker with each topic that it has offsets of or subscribes to.

        A topic that a connected group no longer subscribes to is left out.
        """
        for number, (topic, group) in enumerate(self._pairs(), 1):
            if number % _PAIRS_AT_ONCE == 0:
                await asyncio.sleep(0)
            config = self._topics.get(topic)
            if config is None or group not in self._groups.table or self._is_foreign(group, topic):
                continue
            look = partial(self._queue, group, topic)
            queues = range(config.write_queue_nums)
            yield _sum(group, topic, await self._store.cold_reader.run_each(queues, look))

    def _pairs(self) -> dict[tuple[str, str], None]:
        found = dict.fromkeys(self._offsets.each_pair())
        for group, live in self._clients.consumers.items():
            found.update(dict.fromkeys((topic, group) for topic in live.subscriptions))
        return found

    def _is_foreign(self, group: str, topic: str) -> bool:
        live = self._clients.consumers.get(group)
        return live is not None and bool(live.subscriptions) and topic not in live.subscriptions

    def _queue(self, group: str, topic: str, context: ReadContext, queue_id: int) -> _QueueProgress:
        first = max(0, context.min_offset(topic, queue_id))
        end = max(first, context.max_offset(topic, queue_id))
        committed = self._offsets.committed(group, topic, queue_id)
        done = end if committed < 0 else min(max(committed, first), end)
        pulled = min(max(done, self._offsets.pulled(group, topic, queue_id)), end)
        undone_ms = context.store_time(topic, queue_id, done) if done < end else _NEVER
        unpulled_ms = context.store_time(topic, queue_id, pulled) if pulled < end else _NEVER
        return _QueueProgress(end, done, pulled, undone_ms, unpulled_ms)


def _sum(group: str, topic: str, queues: list[_QueueProgress]) -> GroupProgress:
    return GroupProgress(
        group,
        topic,
        lag=sum(one.end - one.done for one in queues),
        in_flight=sum(one.pulled - one.done for one in queues),
        ready=sum(one.end - one.pulled for one in queues),
        undone_ms=_oldest(one.undone_ms for one in queues),
        unpulled_ms=_oldest(one.unpulled_ms for one in queues),
    )


def _oldest(times: Iterable[int]) -> int:
    found = min((each for each in times if each >= 0), default=_NEVER)
    return 0 if found == _NEVER else found
