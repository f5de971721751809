"""Text of a Java properties file to its entries, each with its line.

Owns the syntax only: comments with # and !, `=`, `:` or blank between key and value, a backslash
at the end of a line, the escapes. Refuses to know which keys exist. Never raises: what Java reads,
this reads, so a licence in XML becomes odd keys, as it does there. Java: Properties.load.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_BLANK = " \t\f"


class Entry(NamedTuple):
    """One key with its value and the line it starts on, counted from 1."""

    key: str
    value: str
    line: int


def parse(text: str) -> list[Entry]:
    """Return all entries in the order of the text; a key given twice comes twice."""
    entries: list[Entry] = []
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), start=1))
    for number, line in lines:
        logical = line.lstrip(_BLANK)
        if not logical or logical[0] in "#!":
            continue
        while _goes_on(logical):
            logical = logical[:-1] + next(lines, (0, ""))[1].lstrip(_BLANK)
        match = _KEY_AND_VALUE.match(logical)
        assert match is not None, "the pattern matches every text"
        entries.append(Entry(_plain(match[1]), _plain(match[2]).rstrip(), number))
    return entries


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
