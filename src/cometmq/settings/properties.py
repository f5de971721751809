"""Text of a Java properties file to its entries, each with its line; and the text with others.

Owns the syntax only: comments with # and !, `=`, `:` or blank between key and value, a backslash
at the end of a line, the escapes. Refuses to know which keys exist. Never raises: what Java reads,
this reads, so a licence in XML becomes odd keys, as it does there. Java: Properties.load.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_SPECIAL = re.compile(r"[\\\t\n\r\f]|^ ")


class PropertiesEntry(NamedTuple):
    """One key with its value and the line it starts on, counted from 1."""

    key: str
    value: str
    line: int


def parse(text: str) -> list[PropertiesEntry]:
    """Return all entries in the order of the text; a key given twice comes twice."""
    lines = _LINE_END.split(text.removeprefix("\ufeff"))
    return [
        PropertiesEntry(key, value, start + 1) for start, _, key, value in _logical_lines(lines)
    ]


def edited(text: str, values: Mapping[str, str], renamed: Mapping[str, str]) -> str:
    """Return the text with these values: each in the place of the old one, or at the end.

    `renamed`: old names of keys, and the present ones, which `values` has.
    """
    lines, left = _LINE_END.split(text.removeprefix("\ufeff")), dict(values)
    if not lines[-1]:
        lines.pop()
    out: list[str] = []
    done = 0
    for start, stop, key, _ in _logical_lines(lines):
        key = renamed.get(key, key)
        if key in values:
            out += [*lines[done:start], _line(key, values[key])]
            left.pop(key, None)
            done = stop
    out += [*lines[done:], *(_line(key, value) for key, value in left.items())]
    return "".join(f"{line}\n" for line in out)


def _logical_lines(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    """First line, the one after the last, key and value of each entry; lines counted from 0."""
    at = 0
    while at < len(lines):
        start, logical = at, lines[at].lstrip(_BLANK)
        at += 1
        if not logical or logical[0] in "#!":
            continue
        while _goes_on(logical):
            logical = logical[:-1] + (lines[at].lstrip(_BLANK) if at < len(lines) else "")
            at += 1
        match = _KEY_AND_VALUE.match(logical)
        assert match is not None, "the pattern matches every text"
        yield start, at, _plain(match[1]), _plain(match[2]).rstrip()


def _line(key: str, value: str) -> str:
    return f"{key}={_SPECIAL.sub(_escaped, value)}"


def _escaped(match: re.Match[str]) -> str:
    return "\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}.get(match[0], match[0])


def _goes_on(line: str) -> bool:
    """Whether an odd number of backslashes ends the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _plain(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _CONTROL.get(escape, escape)
