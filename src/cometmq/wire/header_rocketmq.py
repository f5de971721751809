"""The binary form of a command's header, which a peer may choose for what it sends.

We read it and never choose it: it cannot carry codes above 32,767, and one client in the field
reads JSON only.

    code:i16 language:u8 version:i16 opaque:i32 flag:i32 | remark:i32+bytes | extFields:i32+entries
    entry = key:i16+bytes value:i32+bytes        a text of length 0 counts as absent

Java: RocketMQSerializable.
"""

from __future__ import annotations

from struct import Struct, error

from cometmq.errors import ProtocolError
from cometmq.wire.codes import LanguageCode
from cometmq.wire.header_json import HeaderFields

_FIXED = Struct(">hBhiii")
_I16 = Struct(">h")
_I32 = Struct(">i")


def decode(header: bytes) -> HeaderFields:
    """Read a binary header; raises ProtocolError."""
    try:
        code, language, version, opaque, flag, size = _FIXED.unpack_from(header)
        remark, at = _text(header, _FIXED.size, size)
        (size,) = _I32.unpack_from(header, at)
        ext = _entries(header, at + 4, size)
    except (error, UnicodeDecodeError) as problem:
        raise ProtocolError(f"the binary header is damaged: {problem}") from problem
    if language >= len(LanguageCode):
        raise ProtocolError(f"the binary header names language {language}, which nobody knows")
    return HeaderFields(code, flag, opaque, version, language, remark, ext)


def encode(fields: HeaderFields) -> bytes:
    """Return the binary header; raises ProtocolError for a code it cannot carry."""
    code, flag, opaque, version, language, remark, ext = fields
    if not -0x8000 <= code <= 0x7FFF:
        raise ProtocolError(f"code {code} does not fit a binary header; send it as JSON")
    note = (remark or "").encode("utf-8", "replace")
    pieces: list[bytes] = []
    for key, value in ext.items():
        name, text = key.encode(), value.encode("utf-8", "replace")
        pieces += _I16.pack(len(name)), name, _I32.pack(len(text)), text
    entries = b"".join(pieces)
    fixed = _FIXED.pack(code, language, version, opaque, flag, len(note))
    return fixed + note + _I32.pack(len(entries)) + entries


def _text(header: bytes, at: int, size: int) -> tuple[str | None, int]:
    end = at + size
    if size < 0 or end > len(header):
        raise ProtocolError(f"the binary header holds a text of {size} bytes at {at}")
    return header[at:end].decode() or None, end


def _entries(header: bytes, at: int, size: int) -> dict[str, str]:
    end = at + size
    if size < 0 or end > len(header):
        raise ProtocolError(f"the binary header says {size} bytes of fields, which it has not")
    ext: dict[str, str] = {}
    while at < end:
        (length,) = _I16.unpack_from(header, at)
        key, at = _text(header, at + 2, length)
        (length,) = _I32.unpack_from(header, at)
        value, at = _text(header, at + 4, length)
        if key is not None and value is not None:
            ext[key] = value
    return ext
