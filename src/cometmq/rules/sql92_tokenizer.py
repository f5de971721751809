"""The words of an SQL92 filter, cut from its text one at a time, when they are asked for.

Being lazy matters: RocketMQ never looks at what follows a whole expression, beyond one word. Of
several words that could begin at a place the longest counts. Keywords come in any case, names as
they are written. Comments are `--` up to the end of its line and `/* */`.
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
    """One word. `kind` is a keyword, a sign, or one of FLOAT, INTEGER, STRING, NAME and END."""

    kind: str
    text: str
    at: int


class Tokenizer:
    """The words of one text, in order, each read when it is first looked at."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._ahead: list[Token] = []

    def peek(self, index: int = 0) -> Token:
        """The next word, or one further on; BadFilter where no word can begin."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._read())
        return ahead[index]

    def take(self) -> Token:
        """The next word, which is gone then."""
        return self._ahead.pop(0) if self._ahead else self._read()

    def expect(self, kind: str) -> Token:
        """The next word, which must be of this kind."""
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
            raise BadFilter(f"no word of a filter begins with {self._text[start]!r}", start)
        self._at = found.end()
        kind, text = found.lastgroup or "", found.group()
        if kind == NAME and text.upper() in KEYWORDS:
            kind = text.upper()
        elif kind == "sign":
            kind = text
        return Token(kind, text, start)


def unexpected(token: Token, wanted: str) -> BadFilter:
    """The refusal of a word that stands where another is needed."""
    found = token.text[:32] or token.kind
    return BadFilter(f"{wanted} is needed where {found!r} stands", token.at)
