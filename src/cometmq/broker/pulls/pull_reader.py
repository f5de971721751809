"""Hot. The read of a pull: the records of a queue from an offset on, as many as fit.

Knows no request codes and no groups, and changes nothing: callers need an offset and a message
filter, and nothing else.
Java: the call of MessageStore.getMessage in PullMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.pulls.consumer_filters import ExpressionNotParsed
from cometmq.store.get_result import GetStatus
from cometmq.store.log.mapped_file_queue import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.pulls.pull_check import MessageFilter
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.get_result import GetResult
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.headers.pull import PullMessageRequestHeader

FETCHES_MAX = 20
"""How often a read with a property filter waits for the disk before it returns what it has."""

BODY_BYTES_MIN = 100
"""The least that a client can limit a response to."""

_NO_LIMIT = 1 << 62
"""Of bytes, where the client sets none: the store has limits of its own."""


class PullReader:
    """Reads queues for pulls, within the limits of the store."""

    def __init__(self, store: MessageStore) -> None:
        self._cold_reader = store.cold_reader
        self.cached = store.cold_reader.cached
        """Reads what is in memory; raises NotInMemory for what must be fetched first."""
        self.max_offset = self.cached.max_offset
        """The offset after the last message of a topic's queue that readers may see."""

    def read(
        self,
        context: ReadContext,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter,
        *,
        may_stop: bool = False,
    ) -> GetResult:
        """Read in this context.

        `may_stop`: a property filter that has checked a message ends the read before one that is
        not in memory.
        """
        make = message_filter.new_property_filter
        property_filter = make() if make else None
        if may_stop and property_filter is not None:
            property_filter = property_filter._replace(may_stop=True)
        bytes_max, count = header.max_msg_bytes, header.max_msg_nums
        if header.is_large and header.large_count is not None:
            count = header.large_count
        return context.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            count,
            _NO_LIMIT if bytes_max is None else max(BODY_BYTES_MIN, bytes_max),
            message_filter.matches_tags_code,
            property_filter,
            header.is_large,
        )

    async def read_cold(
        self,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter,
        missing: NotInMemory | ExpressionNotParsed,
        is_abandoned: Callable[[], bool],
    ) -> GetResult | None:
        """Read after a thread has fetched or parsed `missing`, and whatever else is missing.

        None once `is_abandoned` says that nobody waits for the result.
        """
        fetched = 0
        while True:
            fetched += 1
            if isinstance(missing, NotInMemory):
                await self._cold_reader.fetch(missing)
            else:
                await missing.parse_in_thread()
            if is_abandoned():
                return None
            try:
                if fetched <= FETCHES_MAX:
                    return self.read(self.cached, header, message_filter)
                return await self._cold_reader.run(
                    lambda context: self.read(context, header, message_filter, may_stop=True)
                )
            except (NotInMemory, ExpressionNotParsed) as more:
                missing = more

    def is_any_wanted(
        self, topic: str, queue_id: int, start: int, end: int, message_filter: MessageFilter
    ) -> bool:
        """Whether a message between the offsets is, or may be, wanted."""
        make = message_filter.new_property_filter
        try:
            property_filter = make() if make else None
            got = self.cached.get(topic, queue_id, start, 1, 1, None, property_filter)
        except (NotInMemory, ExpressionNotParsed):
            return True
        return got.status is GetStatus.FOUND or got.next_offset < end
