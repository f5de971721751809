"""The backlog of each delay level at the start, split into ranges that share one delay.

A level's queue is in the order in which messages were stored. After the level's delay was changed
it is no longer in the order in which they become due; then each range stored with one delay has a
cursor of its own, so that no message waits for one before it. Finds these ranges, and the messages
that were delivered after the cursors were last saved (before a kill): they lie in their topics.
Invariant: a message counts as delivered only if its topic holds it, stored after it was due, once
for each time that it was held.
Java: none; there a shorter delay delivers what waits early, and a kill repeats what was not saved.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from cometmq.broker.delivery.real_destination import destination_of
from cometmq.errors import ProtocolError
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.store.message_store import MessageStore
    from cometmq.wire.records.log_record import StoredRecord


_Key = tuple[bytes | None, int, int]

RANGES_MAX = 100
"""Ranges of one level; the rest of its queue is one range."""

SCAN_MAX = 200_000
"""Messages read at the start to find those that were delivered already."""

_PULL_COUNT, _PULL_BYTES = 32, 1 << 20


class BacklogRange:
    """Part of a level's queue, delivered from `first` to `cursor`; `end` is None for the tail."""

    __slots__ = ("cursor", "end", "first")

    def __init__(self, first: int, cursor: int, end: int | None) -> None:
        self.first = first
        self.cursor = cursor
        self.end = end

    @property
    def is_done(self) -> bool:
        """Whether all its messages are delivered."""
        return self.end is not None and self.cursor >= self.end


def split_backlog(
    store: MessageStore,
    level: int,
    offset: int,
    saved: Iterable[tuple[int, int]],
    delay_ms: int,
) -> list[BacklogRange]:
    """The ranges of a level that is delivered up to `offset` and now delays by `delay_ms`.

    `saved` holds (first, cursor) of the ranges known when the cursors were saved.
    """
    queue_id = level - 1
    last = store.max_offset(SCHEDULE_TOPIC, queue_id)
    first = min(max(offset, store.min_offset(SCHEDULE_TOPIC, queue_id)), last)
    cursors = {at: cursor for at, cursor in saved if first <= at < last}
    bounds = sorted({first, *cursors, last})
    for low, high in pairwise(list(bounds)):
        bounds += _cuts(store, queue_id, low, high, RANGES_MAX - len(bounds))
    ranges, done = [], first
    for low, high in pairwise(sorted(bounds)):
        done = max(done, cursors.get(low, low))
        ranges.append(BacklogRange(low, min(done, high), high))
    if ranges and _delay_at(store, queue_id, last - 1) == delay_ms:
        ranges[-1].end = None
    else:
        ranges.append(BacklogRange(last, last, None))
    return [part for part in ranges if not part.is_done]


def _cuts(store: MessageStore, queue_id: int, low: int, high: int, most: int) -> list[int]:
    """Offsets between two where the delay changes, found by bisecting."""
    found: list[int] = []
    spans = [(low, high)]
    while spans and len(found) < most:
        low, high = spans.pop()
        if high - low < 2 or _delay_at(store, queue_id, low) == _delay_at(
            store, queue_id, high - 1
        ):
            continue
        middle = (low + high) // 2
        if _delay_at(store, queue_id, middle - 1) != _delay_at(store, queue_id, middle):
            found.append(middle)
        spans += [(low, middle), (middle, high)]
    return found


def _delay_at(store: MessageStore, queue_id: int, offset: int) -> int:
    entry = store.entry(SCHEDULE_TOPIC, queue_id, offset)
    return entry[2] - store.store_time(SCHEDULE_TOPIC, queue_id, offset) if entry else 0


def skip_delivered(store: MessageStore, levels: dict[int, list[BacklogRange]], now_ms: int) -> int:
    """Move each range past what its topic holds already; return how many messages that are."""
    due = [
        entry[2]
        for level, ranges in levels.items()
        for part in ranges
        if (entry := store.entry(SCHEDULE_TOPIC, level - 1, part.cursor)) and entry[2] <= now_ms
    ]
    if not due:
        return 0
    known = _DeliveryTimes(store, min(due))
    return sum(
        _skip(store, level, part, known, now_ms)
        for level, ranges in levels.items()
        for part in ranges
    )


def _skip(
    store: MessageStore, level: int, part: BacklogRange, known: _DeliveryTimes, now_ms: int
) -> int:
    began = part.cursor
    while not part.is_done:
        entry = store.entry(SCHEDULE_TOPIC, level - 1, part.cursor)
        if entry is None or entry[2] > now_ms:
            break
        record = store.record_at(entry[0])
        try:
            if record is None or not known.take(stored.decode(record), entry[2]):
                break
        except ProtocolError:
            break
        part.cursor += 1
    return part.cursor - began


class _DeliveryTimes:
    """When delayed messages were stored in their topics; each queue is read once."""

    def __init__(self, store: MessageStore, since_ms: int) -> None:
        self._store = store
        self._since_ms = since_ms
        self._queues: dict[tuple[str, int], dict[_Key, list[int]]] = {}
        self._left = SCAN_MAX

    def take(self, waiting: StoredRecord, due_ms: int) -> bool:
        """Whether its topic holds this message, stored after it was due; uses up one record."""
        goal = destination_of(waiting.properties)
        found = self._queues.get(goal)
        if found is None:
            found = self._queues[goal] = self._read(*goal)
        times = found.get(_key_of(waiting), [])
        at = bisect_left(times, due_ms)
        if at == len(times):
            return False
        del times[at]
        return True

    def _read(self, topic: str, queue_id: int) -> dict[_Key, list[int]]:
        store, found = self._store, dict[_Key, list[int]]()
        if store.max_offset(topic, queue_id) == 0:
            return found
        offset = store.offset_by_time(topic, queue_id, self._since_ms)
        while self._left > 0:
            got = store.get(topic, queue_id, offset, _PULL_COUNT, _PULL_BYTES)
            for record in stored.iterate(got.body):
                if b"DELAY\x01" in record.properties:
                    found.setdefault(_key_of(record), []).append(record.store_ms)
            if not got.count:
                break
            self._left -= got.count
            offset = got.next_offset
        return found


def _key_of(record: StoredRecord) -> _Key:
    unique = properties.find(record.properties, b"UNIQ_KEY")
    return unique, record.reconsume_times, record.body_crc
