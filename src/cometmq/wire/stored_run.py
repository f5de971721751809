"""Hot. Plain records in a row, as messages: the quick way through the body of a pull.

Plain is a v1 record between IPv4 hosts, not compressed, that ends with the whole-record checksum.
Records of the same size and body length share one layout, so all fields come out in one step.
Refuses to judge others: it stops before the first record that is not plain, or not whole, and
`stored.decode` says what that is.
Java: MessageDecoder.decodesBatch
"""

from __future__ import annotations

from struct import Struct, error

from cometmq.model.message import MessageExt
from cometmq.wire import sysflag
from cometmq.wire.stored import CRC_BYTES, CRC_MARK, FIXED_BYTES, MAGIC_V1

_LENGTHS = Struct(">i80xi")
_TOPIC_AT = 88
_NOT_PLAIN = 0x30 | sysflag.COMPRESSED
_LAYOUTS_MAX = 4096
_Layout = tuple[Struct, int]

_layouts: dict[tuple[int, int, int], _Layout] = {}


def messages(body: bytes, at: int, broker_name: str) -> tuple[list[MessageExt], int]:
    """The plain records of one topic from `at` on, and where they end."""
    found: list[MessageExt] = []
    try:
        first_topic_at = at + _TOPIC_AT + _LENGTHS.unpack_from(body, at)[1]
        width = body[first_topic_at]
        raw_topic = body[first_topic_at + 1 : first_topic_at + 1 + width]
        topic = raw_topic.decode()
    except (error, IndexError, UnicodeDecodeError):
        return found, at
    return found, _collect(body, at, raw_topic, topic, broker_name, found)


def _collect(
    body: bytes, at: int, raw_topic: bytes, topic: str, broker_name: str, found: list[MessageExt]
) -> int:
    add, lengths, layouts, mark = found.append, _LENGTHS.unpack_from, _layouts, CRC_MARK
    width, end, make = len(raw_topic), len(body), MessageExt
    while at < end - FIXED_BYTES:
        size, body_bytes = lengths(body, at)
        if at + size > end:
            return at
        layout = layouts.get((size, body_bytes, width)) or _layout(size, body_bytes, width)
        if layout is None:
            return at
        # fmt: off
        (_, magic, _, queue_id, flag, queue_offset, phy_offset, sys_flag, born_ms, born_host,
         store_ms, store_host, times, prepared, _, content, topic_bytes, its_topic, room, raw,
         crc) = layout[0].unpack_from(body, at)
        # fmt: on
        if (
            magic != MAGIC_V1
            or sys_flag & _NOT_PLAIN
            or topic_bytes != width
            or its_topic != raw_topic
            or room != layout[1]
            or crc[:9] != mark
        ):
            return at
        # fmt: off
        add(make(topic, queue_id, queue_offset, content, raw, times, flag, sys_flag, phy_offset,
                 born_ms, born_host, store_ms, store_host, prepared, broker_name))
        # fmt: on
        at += size
    return at


def _layout(size: int, body_bytes: int, topic_bytes: int) -> _Layout | None:
    """The layout of records with these lengths; None when there can be no such record."""
    room = size - FIXED_BYTES - body_bytes - topic_bytes
    if body_bytes < 0 or room < CRC_BYTES:
        return None
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    text = ">iIiiiqqiq8sq8siqi%dsB%dsh%ds%ds"
    struct = Struct(text % (body_bytes, topic_bytes, room - CRC_BYTES, CRC_BYTES))
    layout = _layouts[size, body_bytes, topic_bytes] = (struct, room)
    return layout
