"""Hot. What makes a list of messages one plain batch, and its body.

Owns the check that all messages of a list are usual ones, and the properties of each; refuses to
know queues and connections. Invariant: the body decodes to what `prepared_message.PreparedBatch`
makes of the same messages, except for the order of the properties.
Java: MessageBatch.generateFromList
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq import native
from cometmq.client.producer.prepared_message import BATCH_ITEM_BYTES
from cometmq.model.message import Message
from cometmq.wire.records.message_batch import encode_keyed
from cometmq.wire.templates.send_request import batch_body

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_MESSAGES_MAX = 512
"""Most messages of one batch."""
TEXT_MAX = 1024
"""Longer keys, tags and sharding keys take the slow path."""
_ITEM_BYTES = BATCH_ITEM_BYTES + len("UNIQ_KEY\x01\x02")
"""What a message takes in a batch besides its body, its key's digits and its other properties."""
_ZERO = 0


class PlainBatch(NamedTuple):
    """Messages of one topic that need nothing special."""

    topic: str
    messages: list[Message]
    bodies: list[bytes]
    tails: list[bytes]
    """The properties of each after its UNIQ_KEY, as the items of a batch have them."""

    def body_bytes(self, key_bytes: int) -> int:
        """The bytes of the body, with UNIQ_KEYs of so many."""
        texts = sum(map(len, self.bodies)) + sum(map(len, self.tails))
        return texts + len(self.tails) * (_ITEM_BYTES + key_bytes)

    def body(self, ids: list[str]) -> bytes:
        """The body of the request; `ids` are the UNIQ_KEYs, all of one length."""
        bodies, tails = self.bodies, self.tails
        if tails.count(tails[0]) == len(tails):
            return batch_body(bodies, list(map(str.encode, ids)), tails[0])
        return encode_keyed(ids, bodies, tails)


class PackedBatch(NamedTuple):
    """The same, written already but for the UNIQ_KEYs. Only where hot loops are in C."""

    topic: str
    messages: list[Message]
    packed: bytearray

    def body(self, ids: list[str]) -> bytes:
        """The body of the request; `ids` are the UNIQ_KEYs, as long as was said before."""
        assert native.c is not None
        native.c.fill_keys(self.packed, ids)
        return bytes(self.packed)


AnyBatch = PlainBatch | PackedBatch


def plain_batch(
    messages: list[Message],
    tail_of: Callable[[str | None], bytes | None],
    key_bytes: int,
    bytes_max: int,
) -> AnyBatch | None:
    """The messages as a plain batch of at most so many bytes; None: they need the slow path.

    `tail_of` gives the properties of messages with a tag, None for one that is unusual; UNIQ_KEYs
    will have `key_bytes`. Measured: 0.9 us a message, with its encoding; in C 0.2.
    """
    if not 1 < len(messages) <= BATCH_MESSAGES_MAX:
        return None
    first = messages[0]
    if type(first) is not Message or type(first.topic) is not str:
        return None
    if native.c is not None:
        packed = native.c.pack_messages(messages, Message, tail_of, key_bytes, bytes_max)
        return None if packed is None else PackedBatch(first.topic, messages, packed)
    batch = _plain_batch_in_python(messages, tail_of)
    return batch if batch is not None and batch.body_bytes(key_bytes) <= bytes_max else None


def _plain_batch_in_python(
    messages: list[Message], tail_of: Callable[[str | None], bytes | None]
) -> PlainBatch | None:
    first = messages[0]
    topic, tags, tails = first.topic, first.tags, list[bytes]()
    tail = tail_of(tags) if tags is None or type(tags) is str else None
    for message in messages:  # measured: 90 ns each, where an attrgetter of all takes 140
        if (
            type(message) is not Message
            or type(message.body) is not bytes
            or not message.body
            or (message.topic is not topic and message.topic != topic)
            or message.properties
            or message.sharding_key is not None
            or message.delay_level is not _ZERO
            or message.due is not None
            or message.flag is not _ZERO
            or message.wait_store_ok is not True
        ):
            return None
        if message.tags is not tags:
            tags = message.tags
            tail = tail_of(tags) if tags is None or type(tags) is str else None
        if tail is None:
            return None
        tails.append(tail)
    keys = [message.keys for message in messages]
    if keys.count(None) < len(keys):
        if not _are_plain(keys):
            return None
        tails = [
            b"%bKEYS\x01%b\x02" % (tail, key.encode()) if key else tail
            for tail, key in zip(tails, keys, strict=True)
        ]
    return PlainBatch(topic, messages, [message.body for message in messages], tails)


def _are_plain(keys: list[str | None]) -> bool:
    """Whether all are texts that can stand in properties, not blank, or none."""
    found = [key for key in keys if key]
    if set(map(type, found)) - {str}:
        return False
    text = "".join(found)
    is_printable = text.isascii() and text.isprintable()
    return (
        is_printable and all(map(str.strip, found)) and max(map(len, found), default=0) <= TEXT_MAX
    )
