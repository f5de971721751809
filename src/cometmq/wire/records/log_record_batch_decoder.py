"""Hot. Plain records in a row, as messages: the quick way through the body of a pull.

Plain is a v1 record between IPv4 hosts, not compressed, that ends with the whole-record checksum.
Records of one topic, size and body length share a layout: all fields come out in one step, and what
cannot differ is compared as it stands. Two of a layout in a row begin a run, walked in one go.
Refuses to judge others: it stops before the first record that is not plain, not whole, or whose
body's checksum is wrong, and `log_record.decode` says what that is.
Java: MessageDecoder.decodesBatch
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from cometmq.model.message import MessageExt
from cometmq.wire.records import sysflag
from cometmq.wire.records.log_record import CRC_BYTES, CRC_MARK, CRC_MASK, FIXED_BYTES, MAGIC_V1

if TYPE_CHECKING:
    from collections.abc import Iterable

_heads = Struct(">8s76xi").unpack_from
_start_of = Struct(">iI").unpack
_ROOM = Struct(">h")
_TOPIC_AT = 88
_FLAGS_AT, _NOT_PLAIN = 11, 0x30 | sysflag.COMPRESSED
_LAYOUTS_MAX, _TOPICS_MAX = 2048, 64
_ROOM_MAX = 32_767


class _Layout(NamedTuple):
    """Records of one topic, size and body length."""

    cut: Struct
    size: int
    start: bytes
    """Size and magic, as they are written."""
    body_bytes: int
    named: bytes
    """The topic and the length of the properties, as they are written."""


_Layouts = dict[tuple[bytes, int], _Layout]
_layouts: dict[bytes, _Layouts] = {}


def messages(body: bytes | memoryview, at: int, broker_name: str) -> tuple[list[MessageExt], int]:
    """The plain records of one topic from `at` on, and where they end."""
    found: list[MessageExt] = []
    try:
        first_topic_at = at + _TOPIC_AT + _heads(body, at)[1]
        width = body[first_topic_at]
        raw_topic = bytes(body[first_topic_at + 1 : first_topic_at + 1 + width])
        topic = raw_topic.decode()
    except (error, IndexError, UnicodeDecodeError):
        return found, at
    return found, _collect(body, at, raw_topic, topic, broker_name, found)


def _collect(
    body: bytes | memoryview,
    at: int,
    raw_topic: bytes,
    topic: str,
    broker_name: str,
    found: list[MessageExt],
) -> int:
    """Add the messages up to the first record that is not plain; where that begins."""
    end, view, last, count = len(body), memoryview(body), None, 0
    layouts = _layouts.get(raw_topic) or _layouts_of(raw_topic)
    heads, add, new, kind, its_mark = _heads, found.append, MessageExt.__new__, MessageExt, CRC_MARK
    while at < end - FIXED_BYTES:
        head = heads(body, at)
        layout = layouts.get(head) or _layout(layouts, raw_topic, head)
        if layout is None or at + layout.size > end:
            return at
        cut, size, its_start, its_bytes, its_name = layout
        run: Iterable[tuple[Any, ...]]
        if layout is last:
            run = cut.iter_unpack(view[at : end - (end - at) % size])
        else:
            run, last = (cut.unpack_from(body, at),), layout
        # fmt: off
        for (start, crc, queue_id, flag, queue_offset, where, times, prepared, body_bytes, content,
             named, raw, mark) in run:
            if (start != its_start or body_bytes != its_bytes or where[_FLAGS_AT] & _NOT_PLAIN
                    or named != its_name or mark != its_mark
                    or crc32(content) & CRC_MASK != crc):
                break
            # fmt: on
            message = new(kind)  # measured: 90 ns with its fields, where a call of it takes 430
            message.topic = topic
            message.broker_name = broker_name
            message.body = content
            message.queue_id = queue_id
            message.queue_offset = queue_offset
            message.raw_properties = raw
            message.reconsume_times = times
            message.flag = flag
            message.prepared_offset = prepared
            message.where = where
            message.parsed = None
            add(message)
        if count == len(found):
            return at
        at += (len(found) - count) * size
        count = len(found)
    return at


def _layouts_of(raw_topic: bytes) -> _Layouts:
    if len(_layouts) >= _TOPICS_MAX:
        _layouts.clear()
    return _layouts.setdefault(raw_topic, {})


def _layout(layouts: _Layouts, raw_topic: bytes, head: tuple[bytes, int]) -> _Layout | None:
    """The layout of records with this head; None when there can be no such record."""
    start, body_bytes = head
    size, magic = _start_of(start)
    width = len(raw_topic)
    room = size - FIXED_BYTES - body_bytes - width
    if magic != MAGIC_V1 or body_bytes < 0 or not CRC_BYTES <= room <= _ROOM_MAX:
        return None
    if len(layouts) >= _LAYOUTS_MAX:
        layouts.clear()
    named = bytes((width,)) + raw_topic + _ROOM.pack(room)
    text = ">8siiiq44siqi%ds%ds%ds9s11x"
    cut = Struct(text % (body_bytes, len(named), room - CRC_BYTES))
    layout = layouts[head] = _Layout(cut, size, start, body_bytes, named)
    return layout
