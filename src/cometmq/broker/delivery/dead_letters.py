"""Dead letters: messages that a group could not consume, stored in %DLQ%<group>.

Owns the properties that say where a dead letter came from, and the deduplication (a setting): the
last origins of each dead-letter queue are remembered, and read back from its tail at first use. The
caller says in properties why the message is dead. Of a long queue only the newest letters are read
at first use; `read_back`, in the background, reads the others and, after a start, the tails of all
queues.
Invariant: a duplicate is answered with the place of the first, once that has been read back.
Java: AbstractSendMessageProcessor; decisions in docs/decisions.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.delivery.property_limit import fit_properties
from cometmq.model.topic import DLQ_PREFIX, dlq_topic_of, is_dlq_topic
from cometmq.store.get_result import GetStatus
from cometmq.store.put_result import PutResult, PutStatus
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.get_result import GetResult
    from cometmq.store.message_draft import MessageDraft
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

ORIGINS_MAX = 16_384
"""Dead letters of one group that are remembered."""

GROUPS_MAX = 128
"""Groups whose dead letters are remembered; the one not used for longest is forgotten."""

_PULL_COUNT, _PULL_BYTES = 32, 1 << 20
_AT_ONCE = 256
"""Letters read at once when a queue is first used: about a millisecond."""


class NewestDeadLetters(NamedTuple):
    """The origins of a queue's newest letters, the offsets not read, and the queue's end."""

    known: dict[bytes, PutResult]
    unread: range
    end: int


class DeadLetterQueues:
    """Stores dead letters. Belongs to the broker's loop."""

    def __init__(
        self, store: MessageStore, topics: Topics, stats: BrokerStats, *, deduplicate: bool
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats
        self._deduplicate = deduplicate
        self._origins: dict[str, dict[bytes, PutResult]] = {}
        self._unread: dict[str, range] = {}
        self._has_begun = False

    def put(self, group: str, draft: MessageDraft, newest: NewestDeadLetters | None) -> PutResult:
        """Put the message into the group's dead-letter queue, or return where it lies already.

        Fills in DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID; `draft.topic` is what is used as the
        origin when the message was never retried. What does not fit beside the message's
        own properties is left out, and at last the longest of these; the reason then names them.
        `newest`: what `prepare` read.
        """
        raw, topic = draft.properties, dlq_topic_of(group)
        origin = origin_of(raw)
        origin_topic = properties.find(raw, b"RETRY_TOPIC") or draft.topic.encode()
        for key, value in ((b"DLQ_ORIGIN_TOPIC", origin_topic), (b"DLQ_ORIGIN_MESSAGE_ID", origin)):
            if value:
                raw = properties.put(raw, key, value)
        raw, left_out = fit_properties(raw)
        if left_out:
            log.warning(
                "a dead letter of %s is stored without the properties %s",
                group,
                ", ".join(left_out),
            )
        draft.topic = topic
        draft.queue_id = 0
        draft.properties = raw
        self._topics.ensure(topic, 1)
        if not self._deduplicate or not origin:
            return self._put(group, origin_topic, draft)
        self._remember_newest(topic, newest)
        known = self._origins[topic] = self._origins.pop(topic)  # used last, so forgotten last
        placed = known.get(origin)
        if placed is None:
            placed = self._put(group, origin_topic, draft)
            if placed.status is PutStatus.PUT_OK:
                _remember(known, origin, placed)
                self._store.on_durable(partial(_forget_unsafe, known, origin), local_only=True)
        return placed

    def _put(self, group: str, origin_topic: bytes, draft: MessageDraft) -> PutResult:
        placed = self._store.put(draft)
        if placed.status is PutStatus.PUT_OK:
            self._stats.count_dead_letter(group, origin_topic.decode("utf-8", "replace"))
        return placed

    def prepare(self, group: str, context: ReadContext) -> NewestDeadLetters | None:
        """Read the group's newest dead letters, before one more is put; None: they are known."""
        topic = dlq_topic_of(group)
        if not self._deduplicate or topic in self._origins:
            return None
        end = self._store.max_offset(topic, 0)
        first = max(context.min_offset(topic, 0), end - ORIGINS_MAX)
        start = offset = max(first, end - _AT_ONCE)
        known: dict[bytes, PutResult] = {}
        while offset < end:
            got = context.get(topic, 0, offset, _PULL_COUNT, _PULL_BYTES)
            offset = _learn(known, got, offset, end)
        return NewestDeadLetters(known, range(first, start), end)

    def _remember_newest(self, topic: str, newest: NewestDeadLetters | None) -> None:
        """Note what was read; `read_back` reads the older ones."""
        if newest is None or topic in self._origins:
            return
        assert newest.end == self._store.max_offset(topic, 0), "letters were put and not noted"
        if len(self._origins) >= GROUPS_MAX:
            del self._origins[next(iter(self._origins))]
        self._origins[topic] = newest.known
        if newest.unread:
            self._unread[topic] = newest.unread

    async def read_back(self) -> None:
        """Read the letters that are not known yet, a few at a time."""
        if not self._has_begun:
            self._has_begun = True
            dead = [name for name in self._topics.table if is_dlq_topic(name)]
            for topic in dead[-GROUPS_MAX:] if self._deduplicate else ():
                group = topic.removeprefix(DLQ_PREFIX)
                newest = await self._store.cold_reader.run(partial(self.prepare, group))
                self._remember_newest(topic, newest)
                await asyncio.sleep(0)
        while self._unread:
            topic, span = self._unread.popitem()
            older: dict[bytes, PutResult] = {}
            offset = span.start
            while offset < span.stop:
                got = await self._store.cold_reader.run(partial(_read_some, topic, offset))
                offset = _learn(older, got, offset, span.stop)
                await asyncio.sleep(0)
            if (known := self._origins.get(topic)) is not None:
                both = list((older | known).items())
                known.clear()
                known.update(both[-ORIGINS_MAX:])


def _read_some(topic: str, offset: int, context: ReadContext) -> GetResult:
    return context.get(topic, 0, offset, _PULL_COUNT, _PULL_BYTES)


def _learn(known: dict[bytes, PutResult], got: GetResult, offset: int, end: int) -> int:
    """Remember the letters of one pull; where to go on."""
    if got.status is GetStatus.FOUND:
        for record in stored.iterate(got.body):
            origin = properties.find(record.properties, b"DLQ_ORIGIN_MESSAGE_ID")
            if origin and record.queue_offset < end:
                place = record.phy_offset, record.size, record.queue_offset, record.store_ms
                _remember(known, origin, PutResult(PutStatus.PUT_OK, *place))
    return got.next_offset if got.next_offset > offset else end


def origin_of(raw: bytes) -> bytes:
    """What identifies a dead letter: the message's id as users see it."""
    return properties.find(raw, b"UNIQ_KEY") or properties.find(raw, b"ORIGIN_MESSAGE_ID") or b""


def _forget_unsafe(known: dict[bytes, PutResult], origin: bytes, status: PutStatus) -> None:
    """Forget the origin of a message that could not be made durable."""
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        known.pop(origin, None)


def _remember(known: dict[bytes, PutResult], origin: bytes, placed: PutResult) -> None:
    known[origin] = placed
    if len(known) > ORIGINS_MAX:
        del known[next(iter(known))]
