"""The properties of a message as bytes: key 0x01 value 0x02, repeated.

A reader accepts a missing last 0x02 and ignores anything but pairs: no 0x01, an empty key, an empty
value. The last of repeated keys counts. The order has no meaning.
The checksum of the whole record is a property, too; `log_record` writes it, and users never see it.
Java: MessageDecoder.string2messageProperties, MessageConst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.message import Property

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_MAX = 32_767
"""Most bytes: their length is a signed 16-bit number on disk."""

CRC32_KEY = b"__CRC32#"
TAGS_KEY, KEYS_KEY = Property.TAGS.encode(), Property.KEYS.encode()
UNIQ_KEY_KEY = Property.UNIQ_KEY.encode()


def encode(pairs: Mapping[str, str]) -> bytes:
    """The pairs as bytes, the last separator included; pairs with an empty value are left out."""
    text = "".join([f"{key}\x01{value}\x02" for key, value in pairs.items() if key and value])
    return text.encode()


def decode(raw: bytes) -> dict[str, str]:
    """The pairs of the bytes; anything else is ignored, bad UTF-8 becomes U+FFFD."""
    pairs: dict[str, str] = {}
    for item in raw.decode("utf-8", "replace").split("\x02"):
        key, _, value = item.partition("\x01")
        if key and value:
            pairs[key] = value
    return pairs


def find(raw: bytes, key: bytes) -> bytes | None:
    """The value of one key without decoding the others; None where there is none."""
    mark = key + b"\x01"
    at = raw.rfind(mark)
    while at >= 0:
        if at == 0 or raw[at - 1] == 2:
            start = at + len(mark)
            end = raw.find(b"\x02", start)
            value = raw[start:] if end < 0 else raw[start:end]
            if value:
                return value
        at = raw.rfind(mark, 0, at)
    return None


def remove(raw: bytes, key: bytes) -> bytes:
    """The bytes without the pairs of this key; unchanged where there is none."""
    mark = key + b"\x01"
    at = raw.find(mark)
    while at >= 0:
        if at == 0 or raw[at - 1] == 2:
            end = raw.find(b"\x02", at)
            raw = raw[:at] + raw[end + 1 :] if end >= 0 else raw[:at]
            at = raw.find(mark, at)
        else:
            at = raw.find(mark, at + 1)
    return raw


def append(raw: bytes, key: bytes, value: bytes) -> bytes:
    """The bytes with one more pair at the end; adds the separator that older writers leave out."""
    if raw and raw[-1] != 2:
        return b"%s\x02%s\x01%s\x02" % (raw, key, value)
    return b"%s%s\x01%s\x02" % (raw, key, value)


def put(raw: bytes, key: bytes, value: bytes) -> bytes:
    """The bytes with this pair at the end, and no other one of its key."""
    return append(remove(raw, key), key, value)
