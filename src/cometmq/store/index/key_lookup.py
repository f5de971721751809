"""Finding messages by their keys: asks the index, reads the records, and checks their keys.

Two keys can have one hash, so the keys of each record found are compared. Refuses to know requests.
Java: DefaultMessageStore.queryMessage, which leaves the comparison to its clients.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.store.get_result import QueryResult
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import tag_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.cold_reads import ColdReader
    from cometmq.store.index.key_index import KeyIndex
    from cometmq.store.message_visibility import VisibilityAdvancer

_CATCH_UP_MS = 1_000
_PAUSE_S = 0.002
_LOOK_S = 0.01
_FAST_BYTES_A_S = 6 << 20
"""What counts as fast: up to there indexing takes less than a tenth of a core, 7 us a message."""


class _PutRate:
    """How fast messages come, measured every `_LOOK_S`."""

    __slots__ = ("_end", "_is_fast", "_since")

    def __init__(self) -> None:
        self._end = -1
        self._since = 0.0
        self._is_fast = False

    def is_fast(self, end: int, now: float) -> bool:
        """Whether it is so fast that the index waits; `end` of the log, `now` in seconds."""
        passed = now - self._since
        if passed >= _LOOK_S:
            self._is_fast = 0 <= self._end < end - _FAST_BYTES_A_S * passed
            self._end = end
            self._since = now
        return self._is_fast


class KeyLookup:
    """Keeps the index up with the log and answers from it. Belongs to the store's loop."""

    def __init__(
        self,
        index: KeyIndex,
        cold_reader: ColdReader,
        publisher: VisibilityAdvancer,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._index = index
        self._cold_reader = cold_reader
        self._publisher = publisher
        self._monotonic_ms = monotonic_ms
        self._is_warm = False

    @property
    def behind_bytes(self) -> int:
        """How much of the log readers may see and the index has not taken in yet."""
        if not self._index.is_enabled:
            return 0
        return max(0, self._publisher.newest_visible.end - self._index.position)

    async def follow_log(self) -> None:
        """Index what readers may see, one batch each iteration of the loop. One caller is enough.

        While messages come fast they go first, until the index is far behind.
        """
        index, more, rate = self._index, True, _PutRate()
        clock = asyncio.get_running_loop().time
        if not self._is_warm:
            self._is_warm = True
            await index.warm(self._cold_reader)
        while more:
            end = self._publisher.newest_visible.end
            if rate.is_fast(end, clock()) and not index.is_far_behind(end):
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                more = index.advance(self._publisher.newest_visible.end)
            except NotInMemory as missing:
                await self._cold_reader.fetch(missing)
            await asyncio.sleep(0)

    async def catch_up(self, within_ms: int = _CATCH_UP_MS) -> None:
        """Wait until all that is visible now is indexed, or the time is over."""
        end, until = self._publisher.newest_visible.end, self._monotonic_ms() + within_ms
        while (
            self._index.is_enabled and self._index.position < end and self._monotonic_ms() < until
        ):
            try:
                is_going = self._index.advance(end)
            except NotInMemory as missing:
                await self._cold_reader.fetch(missing)
            else:
                await asyncio.sleep(0 if is_going else _PAUSE_S)

    async def query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, is_tag: bool = False
    ) -> QueryResult:
        """Records of a topic with this key (or tag), stored in this time, in the log's order.

        The newest `count` of them; times count by the second. What was visible before the call is
        found, unless a second is too short to index it.
        """
        await self.catch_up()
        filed = tag_key(key) if is_tag else key
        offsets, is_complete = await self._index.find(
            self._cold_reader, topic, filed, count, begin_ms, end_ms
        )
        assert len(offsets) <= max(count, 0)
        records = []
        for offset in sorted(offsets):
            record = await self._cold_reader.run(_record_reader(offset))
            if record is not None and _has_key(record, topic, key.encode(), is_tag=is_tag):
                records.append(record)
        last_update = self._index.last_update if offsets else (0, 0)
        return QueryResult(records, *last_update, is_complete)


def _record_reader(phy_offset: int) -> Callable[[ReadContext], bytes | None]:
    return lambda context: context.record_at(phy_offset)


def _has_key(raw: bytes, topic: str, key: bytes, *, is_tag: bool) -> bool:
    try:
        record = stored.decode(raw)
    except ProtocolError:
        return False
    if record.topic != topic:
        return False
    pairs = record.properties
    if is_tag:
        return properties.find(pairs, properties.TAGS_KEY) == key
    if properties.find(pairs, properties.UNIQ_KEY_KEY) == key:
        return True
    return key in (properties.find(pairs, properties.KEYS_KEY) or b"").split(b" ")
