"""Hot. The record of the commit log, which is also the element of a pull's body.

Layout, big-endian: total_size i32, magic u32, body_crc i32, queue_id i32, flag i32, queue_offset
i64, phy_offset i64, sys_flag i32, born_ms i64, born_host 8|20, store_ms i64, store_host 8|20,
reconsume_times i32, prepared_offset i64, body_length i32, body, topic_length u8 (v1) | i16 (v2),
topic, properties_length i16, properties. A host is its IP (4|16) and its port i32.
A file of the log ends with a blank: bytes left i32, blank magic u32.
The optional last property `__CRC32#` covers every byte before it (ten digits, lowest first).
Java: MessageExtEncoder, MessageDecoder, CommitLog.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq.errors import ProtocolError
from cometmq.wire.records import properties as props

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK = Struct(">iI")
BLANK_SIZE = BLANK.size
CRC_MASK = 0x7FFFFFFF
CRC_MARK = b"__CRC32#\x01"
CRC_BYTES = 20
"""What the whole-record checksum takes at the end of the properties."""
HEAD_BYTES_MAX = 112
"""All fields before the body, both hosts IPv6."""
FIXED_BYTES = 91
"""A v1 record with two IPv4 hosts, without body, topic and properties."""


def _head(born: int, store: int) -> Struct:
    return Struct(f">iIiiiqqiq{born}sq{store}siqi")


HEAD = _head(8, 8)
"""All fields before the body, both hosts IPv4: 88 bytes."""
_HEADS = {0x00: HEAD, 0x10: _head(20, 8), 0x20: _head(8, 20), 0x30: _head(20, 20)}
FRONT = Struct(">iIiiiqq")
"""What comes first of it, up to phy_offset: all that differs between like messages of a moment."""
_PREFIX = Struct(">iI")
_INT = _SYS_FLAG = Struct(">i")
_SHORT = Struct(">h")
_PLACE = Struct(">qq")
_new_tuple = tuple.__new__


class StoredRecord(NamedTuple):
    """Every field of one record. `body` is as stored (perhaps deflated), `properties` are raw."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes


@lru_cache(maxsize=4096)
def topic_part(topic: str) -> tuple[int, bytes]:
    """The magic a topic of this length asks for, and the topic with its length before it."""
    raw = topic.encode()
    if len(raw) > 127:
        return MAGIC_V2, _SHORT.pack(len(raw)) + raw
    return MAGIC_V1, bytes((len(raw),)) + raw


def head_of(sys_flag: int) -> Struct:
    """The layout of all fields before the body, which depends on the IPv6 bits."""
    return _HEADS[sys_flag & 0x30]


def behind_front(sys_flag: int) -> Struct:
    """The layout of the fields between `FRONT` and the body."""
    head = _HEADS[sys_flag & 0x30]
    return Struct(head.format.replace(FRONT.format, ">", 1))


def size_of(topic: str, body: bytes, properties: bytes, sys_flag: int, with_crc: bool) -> int:
    """How many bytes `encode` will return for these; the IPv6 bits of `sys_flag` must be right."""
    room = len(properties)
    if with_crc:
        room += CRC_BYTES + (1 if properties and properties[-1] != 2 else 0)
    return _HEADS[sys_flag & 0x30].size + len(body) + len(topic_part(topic)[1]) + 2 + room


def encode(
    topic: str,
    queue_id: int,
    flag: int,
    queue_offset: int,
    phy_offset: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    body: bytes,
    properties: bytes,
    with_crc: bool = True,
) -> bytes:
    """The bytes of one record.

    The IPv6 bits of `sys_flag` must match the hosts, `properties` must not hold a checksum already
    (`properties.remove` it first) and must leave room for it below 32,768 bytes.
    """
    magic, topic_bytes = topic_part(topic)
    if with_crc:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        tail = CRC_BYTES
    else:
        tail = 0
    head = _HEADS[sys_flag & 0x30]
    length = len(properties) + tail
    size = head.size + len(body) + len(topic_bytes) + 2 + length
    record = b"".join(
        (
            head.pack(
                size,
                magic,
                crc32(body) & CRC_MASK,
                queue_id,
                flag,
                queue_offset,
                phy_offset,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                len(body),
            ),
            body,
            topic_bytes,
            _SHORT.pack(length),
            properties,
        )
    )
    if tail:
        return record + checksum_property(record)
    return record


def checksum_property(record: bytes) -> bytes:
    """The last 20 bytes of a record whose other bytes are given."""
    return b"__CRC32#\x01%s\x02" % (b"%010d" % (crc32(record) & CRC_MASK))[::-1]


def decode(buffer: bytes, at: int = 0) -> StoredRecord:
    """The record that starts at `at`; ProtocolError when there is none or it is cut short.

    Looks at lengths and magic only; `is_whole` checks the sums. Any buffer that slices to bytes
    will do, a mapping as well.
    """
    try:
        size, magic = _PREFIX.unpack_from(buffer, at)
        head = _HEADS[_SYS_FLAG.unpack_from(buffer, at + 36)[0] & 0x30]
        fields = head.unpack_from(buffer, at)
        body_at = at + head.size
        body_end = body_at + fields[14]
        if magic == MAGIC_V1:
            topic_at = body_end + 1
            topic_end = topic_at + buffer[body_end]
        elif magic == MAGIC_V2:
            topic_at = body_end + 2
            topic_end = topic_at + _SHORT.unpack_from(buffer, body_end)[0]
        else:
            raise ProtocolError(f"no record at byte {at}: magic {magic:#010x}")
        (length,) = _SHORT.unpack_from(buffer, topic_end)
        end = topic_end + 2 + length
        if body_end < body_at or topic_end < topic_at or length < 0 or end != at + size:
            raise ProtocolError(f"the record at byte {at} has lengths that do not add up")
        if end > len(buffer):
            raise ProtocolError(f"the record at byte {at} is cut short")
        topic = buffer[topic_at:topic_end].decode()
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise ProtocolError(f"the record at byte {at} cannot be read: {problem}") from None
    body, raw = buffer[body_at:body_end], buffer[topic_end + 2 : end]
    stored: StoredRecord = _new_tuple(StoredRecord, (*fields[:14], body, topic, raw))
    return stored


def body_end(head: bytes) -> tuple[int, int]:
    """(magic, where the body ends) of the record that begins with these bytes; (0, 0) for none."""
    try:
        layout = _HEADS[_SYS_FLAG.unpack_from(head, 36)[0] & 0x30]
        length = _INT.unpack_from(head, layout.size - 4)[0]
        return _PREFIX.unpack_from(head)[1], layout.size + length
    except error:
        return 0, 0


def properties_after(magic: int, tail: bytes, at: int) -> bytes:
    """The raw properties of a record whose topic begins, with its length, at `at`; else empty."""
    try:
        if magic == MAGIC_V1:
            at += 1 + tail[at]
        else:
            at += 2 + _SHORT.unpack_from(tail, at)[0]
        end = at + 2 + _SHORT.unpack_from(tail, at)[0]
    except (error, IndexError):
        return b""
    return tail[at + 2 : end]


def iterate(buffer: bytes) -> Iterator[StoredRecord]:
    """The records that lie one after the other; ends quietly at the first that cannot be read."""
    at, end = 0, len(buffer)
    while at < end:
        try:
            record = decode(buffer, at)
        except ProtocolError:
            return
        yield record
        at += record.size


def has_checksum(raw: bytes) -> bool:
    """Whether a record, or its raw properties, ends with a whole-record checksum."""
    return raw[-CRC_BYTES:-11] == CRC_MARK


def is_whole(
    record: StoredRecord, buffer: bytes, at: int = 0, *, must_have_checksum: bool = False
) -> bool:
    """Whether the sums hold: the whole-record one where the record carries it, else the body's.

    `must_have_checksum`: the record was written with the whole-record one.
    """
    raw = record.properties
    if has_checksum(raw):
        end = at + record.size
        return checksum_property(buffer[at : end - CRC_BYTES]) == raw[-CRC_BYTES:]
    return not must_have_checksum and crc32(record.body) & CRC_MASK == record.body_crc


def is_whole_raw(raw: bytes, *, must_have_checksum: bool = False) -> bool:
    """Do as `is_whole` for the bytes of one record: without decoding it, where it can be."""
    if has_checksum(raw):
        end = len(raw) - CRC_BYTES
        is_sized = int.from_bytes(raw[:4]) == len(raw)
        return is_sized and checksum_property(raw[:end]) == raw[end:]
    if must_have_checksum:
        return False
    try:
        record = decode(raw)
    except ProtocolError:
        return False
    return record.size == len(raw) and is_whole(record, raw)


def are_whole(raw: bytes, sizes: Sequence[int], places: Sequence[int], number: int) -> bool:
    """Whether records that lie side by side are these: by place, number and whole-record checksum.

    False as well for records without that checksum. 1.3 us a record of 800 bytes.
    """
    view, end = memoryview(raw), 0
    try:
        for size, place in zip(sizes, places, strict=True):
            at, end = end, end + size
            digits = raw[end - 11 : end - 1][::-1]
            if (
                raw[end - CRC_BYTES : end - 11] != CRC_MARK
                or int(digits) != crc32(view[at : end - CRC_BYTES]) & CRC_MASK
                or _PLACE.unpack_from(raw, at + 20) != (number, place)
            ):
                return False
            number += 1
    except (ValueError, error):
        return False
    return end == len(raw)


def is_torn(record: StoredRecord, buffer: bytes, at: int = 0) -> bool:
    """Whether the record ends as one whose write broke off within the whole-record checksum.

    That leaves NULs where the rest of the checksum's text was, and the body's sum holds. Other
    NULs at the end of the properties are a user's, in a record without this checksum.
    """
    tail = record.properties[-CRC_BYTES:]
    if not tail.endswith(b"\0"):
        return False
    expected = checksum_property(buffer[at : at + record.size - CRC_BYTES])
    return expected.startswith(tail.rstrip(b"\0")) and len(tail) == CRC_BYTES


def shown_properties(raw: bytes) -> bytes:
    """Raw properties without the whole-record checksum, which users never see."""
    if has_checksum(raw):
        return raw[:-CRC_BYTES]
    return props.remove(raw, props.CRC32_KEY)


def text_properties(record: StoredRecord) -> dict[str, str]:
    """The record's properties as pairs, without the whole-record checksum."""
    return props.decode(shown_properties(record.properties))
