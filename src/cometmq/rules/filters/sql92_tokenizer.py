"""Splits the text of an SQL92 filter into tokens, one at a time, on demand.

It must be lazy: RocketMQ reads only one token beyond a complete expression. The longest match
counts. Keywords ignore case, names do not. Comments are `--` to the end of the line and `/* */`.
Java: SelectorParserTokenManager.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cometmq.errors import BadFilter

KEYWORDS = frozenset(
    (
        *("NOT", "AND", "OR", "BETWEEN", "IN", "IS"),
        *("TRUE", "FALSE", "NULL", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)
FLOAT, INTEGER, STRING, NAME, END = "float", "integer", "string", "name", "the end"

_BLANK = re.compile(
    r"(?:[ \t\n\r\f]+"
    r"|--[^\n\r]*(?:\r\n|\n|\r)"
    r"|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
)
_WORD = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])"
)


class Token(NamedTuple):
    """One token. `kind` is a keyword, a sign, or one of FLOAT, INTEGER, STRING, NAME and END."""

    kind: str
    text: str
    at: int


class Tokenizer:
    """The tokens of one text in order, each read on demand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ahead: list[Token] = []

    def peek(self, index: int = 0) -> Token:
        """The next token, or a later one, without taking it; BadFilter if there is no token."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._read())
        return ahead[index]

    def take(self) -> Token:
        """Take the next token."""
        return self._ahead.pop(0) if self._ahead else self._read()

    def expect(self, kind: str) -> Token:
        """Take the next token, which must be of this kind."""
        token = self.take()
        if token.kind != kind:
            raise unexpected(token, kind)
        return token

    def _read(self) -> Token:
        blank = _BLANK.match(self._text, self._at)
        start = blank.end() if blank else self._at
        if start == len(self._text):
            return Token(END, "", start)
        found = _WORD.match(self._text, start)
        if found is None:
            raise BadFilter(f"no token of a filter begins with {self._text[start]!r}", start)
        assert found.end() > start, "a token has at least one character"
        self._at = found.end()
        kind, text = found.lastgroup or "", found.group()
        if kind == NAME and text.upper() in KEYWORDS:
            kind = text.upper()
        elif kind == "sign":
            kind = text
        return Token(kind, text, start)


def unexpected(token: Token, wanted: str) -> BadFilter:
    """The error for a token where another is expected."""
    found = token.text[:32] or token.kind
    return BadFilter(f"expected {wanted}, found {found!r}", token.at)
