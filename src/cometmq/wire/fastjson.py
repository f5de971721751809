"""JSON as Java peers write and read it in bodies: fastjson's dialect, both ways.

Reading takes bare integer keys, whole objects as keys, single quotes, bare words as keys, trailing
commas and `$ref` back references; every key becomes a string, an object key its compact JSON text.
Writing is compact with sorted keys, nulls left out, integer keys bare and `JsonObjectKey`s raw;
`strict` quotes every key and escapes what is not ASCII, for peers that asked for standard JSON.
Java: RemotingSerializable over fastjson 1.2.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from sys import maxsize
from typing import TYPE_CHECKING, Any

from cometmq.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES_MAX = 1_000_000
"""Most values that a body may stand for once its back references are followed."""
DEPTH_MAX = 100
"""Deepest nesting that is read."""

_space = re.compile(r"[ \t\r\n\f\v\ufeff]*").match
_number = re.compile(r"(-?[0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?[LSBFDlsbfd]?", re.ASCII).match
_word = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.@%-]*", re.ASCII).match
_plain = {'"': re.compile(r'[^"\\]*').match, "'": re.compile(r"[^'\\]*").match}
_step = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[([0-9]+)\]").match
_text = json.JSONEncoder(ensure_ascii=False).encode
_beyond_ascii = re.compile(r"[^\x00-\x7f]")
_ESCAPES = dict(zip("\"'\\/bfnrtv0", "\"'\\/\b\f\n\r\t\v\0", strict=True))
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "NaN": None}


class JsonObjectKey(str):
    """The text of an object that stands where a key stands, as fastjson writes such maps."""

    __slots__ = ()


def loads(data: bytes, *, lenient_bytes_max: int = maxsize) -> Any:
    """Read one value; raises ProtocolError. Objects become dicts with string keys.

    A longer text than `lenient_bytes_max` must be standard JSON, without back references and
    escaped surrogate pairs: the library reads that a hundred times as fast as all else is read.
    """
    try:
        text, is_long = data.decode(), len(data) > lenient_bytes_max
        try:
            value = json.loads(text, strict=False, parse_constant=_no_number)
        except ValueError:
            if is_long:
                raise
            value = _Reader(text).read()
        has_references = '$ref"' in text or "$ref'" in text
        has_pairs = "\\ud" in text or "\\uD" in text
        if is_long and (has_references or has_pairs):
            raise ValueError(f"longer than {lenient_bytes_max} bytes it must be plain JSON")
        if has_references:
            value = _References(value).resolved()
        if has_pairs:
            dumps(value)  # refuses halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the body is no JSON, not even as Java writes it: {error}") from error
    return value


def dumps(value: object, *, strict: bool = False) -> bytes:
    """Write a value of dicts, lists, strings, numbers, booleans and None."""
    pieces: list[str] = []
    _write(value, strict, pieces)
    return "".join(pieces).encode()


def dump_entry(key: object, value: object) -> bytes:
    """Write one entry of an object, without the object's braces."""
    return dumps({key: value})[1:-1]


def object_key(fields: Mapping[str, object]) -> JsonObjectKey:
    """Return the object as a key for `dumps`."""
    return JsonObjectKey(dumps(fields).decode())


def _write(value: object, strict: bool, pieces: list[str]) -> None:
    if isinstance(value, str):
        pieces.append(_quoted(value, strict))
    elif value is None:
        pieces.append("null")
    elif isinstance(value, bool):
        pieces.append("true" if value else "false")
    elif isinstance(value, int):
        pieces.append(str(int(value)))
    elif isinstance(value, float):
        pieces.append(_double(value))
    elif isinstance(value, dict):
        _write_object(value, strict, pieces)
    else:
        _write_array(value, strict, pieces)


def _write_object(table: dict[Any, object], strict: bool, pieces: list[str]) -> None:
    comma = "{"
    for key in sorted(table):
        value = table[key]
        if value is None:
            continue
        is_bare = isinstance(key, int | JsonObjectKey) and not strict
        pieces += comma, str(key) if is_bare else _quoted(str(key), strict), ":"
        _write(value, strict, pieces)
        comma = ","
    pieces.append("{}" if comma == "{" else "}")


def _write_array(items: Any, strict: bool, pieces: list[str]) -> None:
    comma = "["
    for item in items:
        pieces.append(comma)
        _write(item, strict, pieces)
        comma = ","
    pieces.append("[]" if comma == "[" else "]")


def _quoted(text: str, strict: bool) -> str:
    quoted = _text(text)
    return _beyond_ascii.sub(_escape, quoted) if strict else quoted


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex().upper()
    return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))


def _double(value: float) -> str:
    if not isfinite(value):
        return "null"
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _no_number(_: str) -> None:
    return None


class _Reader:
    """Reads one text in fastjson's dialect; raises ValueError."""

    __slots__ = ("_at", "_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        value = self._value()
        if self._peek():
            raise self._wrong("something follows the value")
        return value

    def _value(self) -> Any:
        start = self._peek()
        if start == "{":
            return self._object()
        if start == "[":
            return self._array()
        if start in _plain:
            return self._string(start)
        word = _word(self._text, self._at)
        if word and word[0] in _WORDS:
            self._at = word.end()
            return _WORDS[word[0]]
        number = _number(self._text, self._at)
        if not number:
            raise self._wrong("no value")
        self._at = number.end()
        whole, part, power = number.groups()
        return float(f"{whole}{part or ''}{power or ''}") if part or power else int(whole)

    def _object(self) -> dict[str, Any]:
        self._enter()
        table: dict[str, Any] = {}
        while self._peek() != "}":
            key = self._key()
            self._take(":")
            table[key] = self._value()
            if self._peek() != "}":
                self._take(",")
        self._leave()
        return table

    def _array(self) -> list[Any]:
        self._enter()
        items: list[Any] = []
        while self._peek() != "]":
            items.append(self._value())
            if self._peek() != "]":
                self._take(",")
        self._leave()
        return items

    def _key(self) -> str:
        start = self._peek()
        if start in _plain:
            return self._string(start)
        if start == "{":
            return dumps(self._object()).decode()
        bare = _number(self._text, self._at) or _word(self._text, self._at)
        if not bare:
            raise self._wrong("no key")
        self._at = bare.end()
        return bare[0]

    def _string(self, quote: str) -> str:
        text, pieces = self._text, []
        self._at += 1
        while True:
            plain = _plain[quote](text, self._at)
            assert plain is not None
            pieces.append(plain[0])
            self._at = plain.end() + 1
            if text[plain.end() : self._at] == quote:
                break
            pieces.append(self._escaped())
        whole = "".join(pieces)
        if len(pieces) > 1:  # joins the halves of escaped surrogate pairs, refuses single ones
            whole = whole.encode("utf-16", "surrogatepass").decode("utf-16")
        return whole

    def _escaped(self) -> str:
        mark = self._text[self._at : self._at + 1]
        self._at += 1
        if mark == "u":
            digits = self._text[self._at : self._at + 4]
            self._at += 4
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise self._wrong("a damaged \\u escape")
            return chr(int(digits, 16))
        if mark not in _ESCAPES:
            raise self._wrong("an unknown escape or no closing quote")
        return _ESCAPES[mark]

    def _peek(self) -> str:
        space = _space(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong(f"{mark!r} is missing")
        self._at += 1

    def _enter(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"nested deeper than {DEPTH_MAX}")

    def _leave(self) -> None:
        self._at += 1
        self._depth -= 1

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"{what} at character {self._at}")


class _References:
    """Puts in the place of each `{"$ref": path}` the value that the path names.

    Only values complete before the reference can be meant; a reference into its own surroundings
    (`..`, `@`, `$`) becomes None. What the result stands for is bounded, so that a few references
    to references cannot keep a reader busy for ever.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}

    def resolved(self) -> Any:
        return self._walk(self._root)[0]

    def _walk(self, node: Any) -> tuple[Any, int]:
        if isinstance(node, dict):
            path = node.get("$ref")
            if len(node) == 1 and isinstance(path, str):
                return self._target(path)
            entries: Any = list(node.items())
        elif isinstance(node, list):
            entries = list(enumerate(node))
        else:
            return node, 1
        size = 1
        for key, child in entries:
            node[key], child_size = self._walk(child)
            size += child_size
        if size > NODES_MAX:
            raise ValueError(f"the references stand for more than {NODES_MAX} values")
        self._sizes[id(node)] = size
        return node, size

    def _target(self, path: str) -> tuple[Any, int]:
        node, at = self._root, 1
        while path.startswith("$") and (step := _step(path, at)):
            name = step[2] or re.sub(r"\\(.)", r"\1", step[1])
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (LookupError, TypeError, ValueError):
                return None, 1
            at = step.end()
        if at != len(path):
            return None, 1
        if isinstance(node, dict | list):
            size = self._sizes.get(id(node))
            return (None, 1) if size is None else (node, size)
        return node, 1
