"""Parses SQL92 filters: texts that say which messages a subscriber wants.

The grammar, loosest first: OR; AND; `=`, `<>`, IS [NOT] NULL; `<`, `<=`, `>`, `>=` and [NOT]
BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH; then `+`, `-`, NOT; then literals, properties and
expressions in brackets. Like RocketMQ it ignores what follows a complete expression.
Invariant: a filter never raises; a message matches only if the result is True.
Java: SelectorParser.jj, SqlFilter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import BadFilter
from cometmq.rules.filters import sql92_expressions as terms
from cometmq.rules.filters.sql92_tokenizer import (
    FLOAT,
    INTEGER,
    NAME,
    STRING,
    Tokenizer,
    unexpected,
)
from cometmq.rules.filters.sql92_values import double, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.rules.filters.sql92_expressions import Evaluate, Expression, PropertyGetter

LENGTH_MAX = 16_384
"""Longest filter, characters."""

_TEXT_TESTS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}


class Sql92Filter:
    """A parsed filter. `size` is the number of its parts: the most that a message costs."""

    __slots__ = ("_run", "size")

    def __init__(self, run: Evaluate, size: int) -> None:
        self._run = run
        self.size = size

    def matches(self, get: PropertyGetter) -> bool:
        """Whether a message matches; `get` returns a property by its name, or None."""
        try:
            return self._run(get) is True
        except ValueError:  # a text compared with a number is not one
            return False


def parse(text: str) -> Sql92Filter:
    """The filter of a text; raises BadFilter for a text that is not one."""
    term = _term(text)
    return Sql92Filter(term.run, term.size)


def evaluator_of(text: str) -> Evaluate:
    """The filter as a function of three values, None for unknown; it may raise ValueError."""
    return _term(text).run


def _term(text: str) -> Expression:
    if len(text) > LENGTH_MAX:
        raise BadFilter(f"it is longer than {LENGTH_MAX} characters", LENGTH_MAX)
    return _Parser(text).whole()


class _Parser:
    """A recursive descent parser of one text; one method for each level of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokenizer(text)
        self._nested = 0

    def whole(self) -> Expression:
        found = terms.condition(self._either(), 0)
        assert self._nested == 0, "a bracket was opened and not closed, or the other way round"
        return found

    def _either(self) -> Expression:
        return self._row("OR", self._both)

    def _both(self) -> Expression:
        return self._row("AND", self._equality)

    def _row(self, word: str, part: Callable[[], Expression]) -> Expression:
        tokens, found = self._tokens, [part()]
        while (token := tokens.peek()).kind == word:
            tokens.take()
            found.append(part())
        if len(found) == 1:
            return found[0]
        conditions = [terms.condition(term, token.at) for term in found]
        return terms.joined(conditions, token.at, by_or=word == "OR")

    def _equality(self) -> Expression:
        tokens, left = self._tokens, self._comparison()
        while True:
            kind, at = tokens.peek().kind, tokens.peek().at
            if kind in ("=", "<>"):
                tokens.take()
                left = terms.equals(left, self._comparison(), at)
                left = left if kind == "=" else terms.negated(left, at)
            elif kind == "IS":
                tokens.take()
                is_not = tokens.peek().kind == "NOT" and bool(tokens.take())
                tokens.expect("NULL")
                left = terms.is_null(left, at)
                left = terms.negated(left, at) if is_not else left
            else:
                return left

    def _comparison(self) -> Expression:
        tokens, left = self._tokens, self._unary()
        while True:
            token = tokens.peek()
            is_not = token.kind == "NOT"
            kind = tokens.peek(1).kind if is_not else token.kind
            if kind in terms.ORDERS and not is_not:
                tokens.take()
                left = terms.ordered(left, self._unary(), kind, token.at)
            elif kind in ("BETWEEN", "IN", *_TEXT_TESTS):
                for _ in range(1 + is_not):
                    tokens.take()
                left = self._test(left, kind, token.at, is_not=is_not)
            elif is_not:
                raise unexpected(tokens.peek(1), "BETWEEN, IN or the like after NOT")
            else:
                return left

    def _test(self, left: Expression, kind: str, at: int, *, is_not: bool) -> Expression:
        if kind in _TEXT_TESTS:
            return terms.holding(left, kind, self._string(), at, is_not=is_not)
        if kind == "IN":
            return terms.among(left, self._strings(), at, is_not=is_not)
        low = self._unary()
        self._tokens.expect("AND")
        return (terms.outside if is_not else terms.between)(left, low, self._unary(), at)

    def _unary(self) -> Expression:
        kind, at = self._tokens.peek().kind, self._tokens.peek().at
        if kind not in ("+", "-", "NOT"):
            return self._primary()
        self._tokens.take()
        with_sign = self._deeper(self._unary, at)
        if kind == "NOT":
            return terms.negated(terms.condition(with_sign, at), at)
        return terms.negative(with_sign, at) if kind == "-" else with_sign

    def _primary(self) -> Expression:
        token = self._tokens.take()
        kind, text, at = token
        if kind == "(":
            term = self._deeper(self._either, at)
            self._tokens.expect(")")
            return term
        if kind == NAME:
            return terms.named(text)
        if kind in _LITERALS:
            return terms.constant(_LITERALS[kind], at)
        if kind == STRING:
            return terms.constant(_plain(text), at)
        if kind not in (INTEGER, FLOAT):
            raise unexpected(token, "a value, a property or a bracket")
        try:
            return terms.constant(integer(text) if kind == INTEGER else double(text), at)
        except ValueError as error:
            raise BadFilter(str(error), at) from None

    def _deeper(self, part: Callable[[], Expression], at: int) -> Expression:
        self._nested += 1
        if self._nested > terms.DEPTH_MAX:
            raise BadFilter(f"the filter is nested deeper than {terms.DEPTH_MAX}", at)
        depth = self._nested
        term = part()
        assert self._nested == depth, "what is nested ended at another depth"
        self._nested -= 1
        return term

    def _strings(self) -> list[str]:
        tokens = self._tokens
        tokens.expect("(")
        found = [self._string()]
        while tokens.peek().kind == ",":
            tokens.take()
            found.append(self._string())
        tokens.expect(")")
        return found

    def _string(self) -> str:
        return _plain(self._tokens.expect(STRING).text)


def _plain(literal: str) -> str:
    """The text of a literal: without its quotes, two inside standing for one."""
    assert literal[0] == literal[-1] == "'", "a literal stands in quotes"
    return literal[1:-1].replace("''", "'")
