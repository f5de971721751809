"""Hot. The JSON form of a command's header: bytes to fields and fields to bytes.

Refuses to know frames and what the fields mean. Reading is as tolerant as a Java peer: any key
order, unknown keys, numbers as strings, raw numbers and booleans inside `extFields` (they become
strings). Writing is what a Java peer writes: keys in alphabetical order, compact, raw UTF-8.
With msgspec installed the common case is read by a typed decoder; what it refuses goes to the
standard library. Both give the same fields or refuse, but msgspec does not look into keys that
nobody reads.
Java: RemotingSerializable, RemotingCommand.headerDecode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quoted
from typing import Any, NamedTuple

from cometmq.errors import ProtocolError
from cometmq.wire.codes import LanguageCode

_LANGUAGES = {code.name: int(code) for code in LanguageCode}
_LANGUAGE_NAMES = [code.name.encode() for code in LanguageCode]
_is_integer = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_tolerant = json.JSONDecoder(strict=False).decode
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class HeaderFields(NamedTuple):
    """The fields of a command's header, whatever its encoding."""

    code: int
    flag: int
    opaque: int
    version: int
    language: int
    remark: str | None
    ext: dict[str, str]


Decoder = Callable[[bytes], HeaderFields]


def decode_tolerant(header: bytes) -> HeaderFields:
    """Read a header with the standard library alone; raises ProtocolError."""
    try:
        found = _tolerant(header.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the header is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ProtocolError("the header is JSON but no object")
    remark = found.get("remark")
    fields = HeaderFields(
        _int32(found, "code"),
        _int32(found, "flag"),
        _int32(found, "opaque"),
        _int32(found, "version"),
        _language(found.get("language")),
        None if remark is None else _string(remark),
        _ext(found.get("extFields")),
    )
    if b"\\u" in header:
        _refuse_half_characters(fields)
    return fields


def encode(
    code: int,
    opaque: int,
    flag: int,
    language: int,
    version: int,
    remark: str | None,
    ext: Mapping[str, str] | None,
) -> bytes:
    """Return the header; `remark` and `ext` are left out when None."""
    return b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b%b%d}' % (
        code,
        b"" if ext is None else b',"extFields":' + _object(ext),
        flag,
        _LANGUAGE_NAMES[language],
        opaque,
        b"" if remark is None else b',"remark":' + quoted(remark).encode("utf-8", "replace"),
        b',"serializeTypeCurrentRPC":"JSON","version":',
        version,
    )


def _int32(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key, 0)
    if type(value) is str and _is_integer(value):
        value = int(value)
    if value is None:
        return 0
    if type(value) is not int or not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ProtocolError(f"the header's {key} is no 32-bit number")
    return value


def _language(value: object) -> int:
    if value is None:
        return LanguageCode.JAVA
    if isinstance(value, str):
        return _LANGUAGES.get(value.upper(), LanguageCode.OTHER)
    if type(value) is int and 0 <= value < len(LanguageCode):
        return value
    raise ProtocolError("the header's language is neither a name nor a known number")


def _ext(found: object) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ProtocolError("the header's extFields is no object")
    return {key: _string(value) for key, value in found.items() if value is not None}


def _string(value: object) -> str:
    return value if isinstance(value, str) else _text(value)


def _refuse_half_characters(fields: HeaderFields) -> None:
    try:
        (fields.remark or "").encode()
        for key, value in fields.ext.items():
            key.encode()
            value.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("the header holds half of a surrogate pair") from error


def _plain_object(fields: Mapping[str, str]) -> bytes:
    pairs = [quoted(key) + ":" + quoted(value) for key, value in fields.items()]
    return ("{" + ",".join(pairs) + "}").encode("utf-8", "replace")


def _typed_encoder() -> Callable[[Mapping[str, str]], bytes] | None:
    """Return the encoder of texts by name that uses msgspec, or None where it is missing."""
    try:
        from msgspec.json import encode as write
    except ImportError:
        return None

    def encode_typed(fields: Mapping[str, str]) -> bytes:
        try:
            return write(fields)
        except ValueError:
            return _plain_object(fields)

    return encode_typed


def _typed_decoder() -> Decoder | None:
    """Return the decoder that uses msgspec, or None where it is not installed."""
    try:
        import msgspec
    except ImportError:
        return None
    shape = msgspec.defstruct(
        "JsonHeader",
        [
            ("code", int, 0),
            ("flag", int, 0),
            ("opaque", int, 0),
            ("version", int, 0),
            ("language", str, "JAVA"),
            ("remark", str | None, None),
            ("extFields", dict[str, str] | None, None),
        ],
        gc=False,
    )
    read: Callable[[bytes], Any] = msgspec.json.Decoder(shape).decode
    refusal = (msgspec.MsgspecError, ValueError, RecursionError)

    def decode_typed(header: bytes) -> HeaderFields:
        try:
            found = read(header)
        except refusal:
            return decode_tolerant(header)
        code, flag, opaque, version = found.code, found.flag, found.opaque, found.version
        for number in (code, flag, opaque, version):
            if not -0x80000000 <= number <= 0x7FFFFFFF:
                raise ProtocolError(f"the header holds {number}, which is no 32-bit number")
        language = _LANGUAGES.get(found.language)
        if language is None:
            language = _language(found.language)
        return HeaderFields(
            code, flag, opaque, version, language, found.remark, found.extFields or {}
        )

    return decode_typed


_object = _typed_encoder() or _plain_object
decode: Decoder = _typed_decoder() or decode_tolerant
"""Read a header; raises ProtocolError when it is no JSON header."""
