"""Hot. The read of a pull: the records of a queue from an offset on, as many as fit.

Knows no request codes and no groups, and changes nothing: whoever has an offset and a message
filter can read with it.
Java: the call of MessageStore.getMessage in PullMessageProcessor.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.messages.pull_check import MessageFilter
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.store.results import GetResult, PropertyFilter
    from cometmq.wire.headers.pull import PullMessageRequestHeader

FETCHES_MAX = 20
"""How often a read waits for a thread to fetch data; a further one may wait on the loop."""

BODY_BYTES_MIN = 100
"""The least that a client can limit a response to."""


class PullReader:
    """Reads queues within the limits of the settings."""

    def __init__(self, store: MessageStore, settings: StoreSettings) -> None:
        self._store = store
        self.max_offset = store.max_offset
        """The offset after the last message of a topic's queue."""
        self.adjust(settings)

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these settings from now on."""
        self._count_max = settings.transfer_count_in_memory_max
        self._bytes_max = settings.transfer_bytes_in_memory_max

    def read_cached(
        self, header: PullMessageRequestHeader, message_filter: MessageFilter
    ) -> GetResult:
        """Read what is in memory; raises NotInMemory for what must be fetched first."""
        make = message_filter.new_property_filter
        property_filter = make() if make else None
        read = partial(  # as _reading makes it; written out here to save a call per pull
            self._store.get,
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(1, min(header.max_msg_nums, self._count_max)),
            self._bytes_max if header.max_msg_bytes is None else self._bytes_of(header),
            message_filter.matches_tags_code,
            property_filter,
        )
        return self._store.cold_reader.read_cached(read)

    async def read_cold(
        self,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter,
        missing: NotInMemory,
        is_abandoned: Callable[[], bool],
    ) -> GetResult | None:
        """Read after a thread has fetched `missing`, and whatever else turns out to be missing.

        None once `is_abandoned` says that nobody waits for the result.
        """
        for _ in range(FETCHES_MAX):
            await self._store.cold_reader.fetch(missing)
            if is_abandoned():
                return None
            try:
                return self.read_cached(header, message_filter)
            except NotInMemory as more:
                missing = more
        # A property filter that keeps meeting cold messages returns what it has found so far.
        make = message_filter.new_property_filter
        property_filter = make()._replace(may_stop=True) if make else None
        reading = self._reading(header, message_filter, property_filter)
        try:
            return self._store.cold_reader.read_cached(reading)
        except NotInMemory:
            return reading()

    def is_any_wanted(
        self, topic: str, queue_id: int, start: int, end: int, message_filter: MessageFilter
    ) -> bool:
        """Whether a message between the offsets is, or may be, wanted."""
        make = message_filter.new_property_filter
        property_filter = make() if make else None
        got = self._store.get(topic, queue_id, start, 1, 1, None, property_filter)
        return got.status is GetStatus.FOUND or got.next_offset < end

    def _reading(
        self,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter,
        property_filter: PropertyFilter | None,
    ) -> Callable[[], GetResult]:
        return partial(
            self._store.get,
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(1, min(header.max_msg_nums, self._count_max)),
            self._bytes_max if header.max_msg_bytes is None else self._bytes_of(header),
            message_filter.matches_tags_code,
            property_filter,
        )

    def _bytes_of(self, header: PullMessageRequestHeader) -> int:
        return max(BODY_BYTES_MIN, min(header.max_msg_bytes or 0, self._bytes_max))
