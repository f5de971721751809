"""The properties of a message as bytes: key 0x01 value 0x02, repeated.

A reader tolerates a missing last 0x02 and drops what is no pair: no 0x01, an empty key, an empty
value. Of repeated keys the last one counts. Order has no meaning.
The whole-record checksum is a property too; `wire.stored` writes it, nobody shows it to users.
Java: MessageDecoder.string2messageProperties, MessageConst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.message import Property

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_MAX = 32_767
"""The length is a signed 16-bit number on disk."""

CRC32_KEY = b"__CRC32#"
TAGS_KEY, KEYS_KEY = Property.TAGS.encode(), Property.KEYS.encode()
UNIQ_KEY_KEY = Property.UNIQ_KEY.encode()


def encode(pairs: Mapping[str, str]) -> bytes:
    """The pairs as bytes, the last separator included; pairs with an empty value are left out."""
    text = "".join([f"{key}\x01{value}\x02" for key, value in pairs.items() if key and value])
    return text.encode()


def decode(raw: bytes) -> dict[str, str]:
    """The pairs of the bytes; what is no pair is dropped, bad UTF-8 becomes replacement marks."""
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
    """The bytes with one pair more at the end; adds the separator that an older writer left out."""
    if raw and raw[-1] != 2:
        return b"%s\x02%s\x01%s\x02" % (raw, key, value)
    return b"%s%s\x01%s\x02" % (raw, key, value)
