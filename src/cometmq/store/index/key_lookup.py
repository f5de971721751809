"""Finding messages by their keys: asks the index, reads the records, and checks their keys.

Two keys can have one hash, so the keys of each record found are compared. Refuses to know requests.
Java: DefaultMessageStore.queryMessage, which leaves the comparison to its clients.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.store.get_result import QueryResult
from cometmq.store.index.index_builder import CHUNK_BYTES
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
        """Index what readers may see, beside the iterations of the loop. One caller is enough.

        In each iteration as much as came in the one before, and a slice more: so it keeps pace with
        any load. It ends where less than a slice is left, for the next call: the fewer records at
        once, the more each costs.
        """
        index, more = self._index, True
        if not self._is_warm:
            self._is_warm = True
            await index.warm(self._cold_reader)
        end = self._publisher.newest_visible.end
        while more:
            before, end = end, self._publisher.newest_visible.end
            until = index.position + end - before
            try:
                more = index.advance(end)
                while more and index.position < until:
                    more = index.advance(end)
            except NotInMemory as missing:
                await self._cold_reader.fetch(missing)
            more = more and (index.is_amid_records or end - index.position >= CHUNK_BYTES)
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
