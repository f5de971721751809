"""Hot. Batches whose messages need nothing special: stored as they came, by one template.

What needs more (a delay, a transaction, a property that a broker gave) is left to `BatchWriter`,
and so is whatever is wrong with a batch. Knows no headers.
Java: none; SendMessageProcessor.sendBatchMessage looks at each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq import native
from cometmq.broker.delivery.timer_schedule import TIMER_MARK
from cometmq.broker.sends.batch_tag_codes import batch_tag_codes
from cometmq.broker.sends.message_preparation import COPIED_MARKS, TRANSIENT_MARK
from cometmq.errors import ProtocolError
from cometmq.store.log.record_template import StoredBatch
from cometmq.wire.records import message_batch, message_id, properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.log.record_template import RecordTemplate

SPECIAL_MARKS = (
    *COPIED_MARKS,
    b"POP_CK\x01",
    properties.CRC32_KEY,
    TRANSIENT_MARK,
    b"INNER_NUM\x01",
    b"DELAY\x01",
    TIMER_MARK,
    b"TRAN_MSG\x01",
)
"""What a message cannot carry that is stored as it came."""

SMALL_BATCH_MAX = 512
"""Messages that are stored at once, about 2 ms; of larger batches one is stored at a time."""


def plain_codes(raws: list[bytes], code_of: Callable[[bytes], int]) -> list[int] | None:
    """The tags codes of messages with these properties; None: some need more, or may.

    Measured for 32: 0.25 us a message in C, 0.5 in Python.
    """
    if native.c is not None:
        return native.c.plain_tag_codes(raws, SPECIAL_MARKS)
    together = b"".join(raws)  # a mark over a border costs time, no more
    # Measured: `rfind` takes 0.13 us a message of 130 B, `in` 0.35.
    if any(together.rfind(mark) >= 0 for mark in SPECIAL_MARKS):
        return None
    return batch_tag_codes(raws, together, code_of)


class PlainBatchWriter:
    """Puts the batches of one sender to one topic, all of whose messages have no flag."""

    __slots__ = ("_code_of", "_host", "_host_digits", "_messages_max", "_template")

    def __init__(
        self,
        template: RecordTemplate,
        code_of: Callable[[bytes], int],
        messages_max: int,
        store_host: bytes,
    ) -> None:
        """`store_host` is the packed address that the ids of messages begin with."""
        self._template = template
        self._code_of = code_of
        self._messages_max = min(messages_max, SMALL_BATCH_MAX)
        self._host = store_host
        self._host_digits = store_host.hex().upper().encode()

    def put(self, queue_id: int, born_ms: int, body: bytes) -> StoredBatch | None:
        """Put the messages of a request's body; None: nothing was kept, take the slow path."""
        if native.c is not None:
            place = queue_id, born_ms, body, self._messages_max
            if stored := self._template.put_batch_body(*place, SPECIAL_MARKS, self._host_digits):
                return stored
        try:
            items, _ = message_batch.decode_part(body, 0, self._messages_max + 1)
        except ProtocolError:
            return None
        flags, bodies, raws = items
        if not 0 < len(bodies) <= self._messages_max or any(flags) or not all(bodies):
            return None
        codes = plain_codes(raws, self._code_of)
        if codes is None:
            return None
        placed = self._template.put_batch(queue_id, born_ms, bodies, raws, codes)
        if placed is None:
            return None
        ids = message_id.offset_ids(self._host, placed.phy_offsets).encode()
        return StoredBatch(ids, placed.queue_offsets[0], len(bodies), placed.size)
