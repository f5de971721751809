"""The expressions of an SQL92 filter, each with the function that evaluates it for a message.

Refuses what RocketMQ refuses in an expression (a text beside `<`, `= NULL`, a range that
ends before it begins). Results have three values: True, False, None for unknown. A function takes
`get`, which returns a property's text or None, and may raise ValueError: then there is no result.
Java: ComparisonExpression, LogicExpression, UnaryExpression, PropertyExpression.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import ge, gt, le, lt
from typing import NamedTuple

from cometmq.errors import BadFilter
from cometmq.rules.filters.sql92_values import Long, Value, compare, equal, order

PropertyGetter = Callable[[str], str | None]
Evaluate = Callable[[PropertyGetter], Value]

DEPTH_MAX = 100
"""Deepest nesting of expressions."""

ORDERS: dict[str, Callable[[int, int], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


class Expression(NamedTuple):
    """`value` is that of a constant, `name` that of a property; `size` counts all parts."""

    run: Evaluate
    depth: int = 1
    size: int = 1
    is_condition: bool = False
    is_constant: bool = False
    value: Value = None
    name: str | None = None


def constant(value: Value, at: int) -> Expression:
    """A literal. A double must be positive and finite, whatever its sign."""
    if type(value) is float and not 0 < value < inf:
        raise BadFilter("a number with a point must lie between 4.9e-324 and 1.8e308", at)
    is_condition = value is None or type(value) is bool
    return Expression(lambda _get: value, is_condition=is_condition, is_constant=True, value=value)


def named(name: str) -> Expression:
    """A property."""
    return Expression(lambda get: get(name), name=name)


def condition(term: Expression, at: int) -> Expression:
    """The expression as a condition. A property alone is a condition that is never true."""
    if term.is_condition:
        return term
    if term.name is None:
        raise BadFilter("a condition is needed here, not a value", at)
    run = term.run
    return _made(lambda get: None if run(get) is None else False, at, term)


def negative(term: Expression, at: int) -> Expression:
    """`-` before an expression; the result for anything but a number is unknown."""
    run = term.run

    def negate(get: PropertyGetter) -> Value:
        value = run(get)
        if value is None or type(value) in (bool, str):
            return None
        assert not isinstance(value, str)
        return Long(-value) if type(value) is Long else -value

    return Expression(negate, _deeper(at, term), 1 + term.size)


def negated(term: Expression, at: int) -> Expression:
    """NOT before a condition."""
    run = term.run

    def invert(get: PropertyGetter) -> Value:
        value = run(get)
        return None if value is None else not value

    return _made(invert, at, term)


def joined(terms: list[Expression], at: int, *, by_or: bool) -> Expression:
    """Conditions joined by AND or OR, evaluated from the left until one decides."""
    if len(terms) == 1:
        return terms[0]
    runs = tuple(term.run for term in terms)

    def join(get: PropertyGetter) -> Value:
        verdict: Value = not by_or
        for run in runs:
            value = run(get)
            if value is by_or:
                return by_or
            if value is None:
                verdict = None
        return verdict

    return _made(join, at, *terms)


def equals(left: Expression, right: Expression, at: int) -> Expression:
    """`=`: refuses a literal NULL on either side, and a truth value against another type."""
    for term in (left, right):
        if term.is_constant and term.value is None:
            raise BadFilter("NULL is compared with IS NULL or IS NOT NULL", at)
    if left.is_constant and left.is_condition and right.is_constant and not right.is_condition:
        raise BadFilter("a truth value is compared with another one only", at)
    left_run, right_run, wanted = left.run, right.run, right.value
    if left.name is not None and type(wanted) is str:  # the common case, without `equal`

        def same(get: PropertyGetter) -> Value:
            found = left_run(get)
            return None if found is None else found == wanted

        return _made(same, at, left, right)
    return _made(lambda get: equal(left_run(get), right_run(get)), at, left, right)


def is_null(term: Expression, at: int) -> Expression:
    """IS NULL."""
    run = term.run
    return _made(lambda get: run(get) is None, at, term)


def ordered(left: Expression, right: Expression, sign: str, at: int) -> Expression:
    """`>`, `>=`, `<` or `<=`: between numbers, and properties that may be numbers."""
    for term in (left, right):
        is_number = type(term.value) in (int, Long, float)
        if term.is_condition or (term.is_constant and not is_number):
            raise BadFilter(f"{sign} compares numbers and properties only", at)
    left_run, right_run, test = left.run, right.run, ORDERS[sign]

    def run(get: PropertyGetter) -> Value:
        one = left_run(get)
        if one is None:
            return None
        other = right_run(get)
        return None if other is None else test(order(one, other), 0)

    return _made(run, at, left, right)


def between(term: Expression, low: Expression, high: Expression, at: int) -> Expression:
    """BETWEEN low AND high, both included; two literals must stand in order."""
    if low.is_constant and high.is_constant:
        if low.value is None or high.value is None:
            raise BadFilter("a range has no NULL at its ends", at)
        try:
            is_empty = compare(high.value, low.value) < 0
        except ValueError as error:
            raise BadFilter(f"no range: {error}", at) from None
        if is_empty:
            raise BadFilter("the range ends before it begins", at)
    ends = [ordered(term, low, ">=", at), ordered(term, high, "<=", at)]
    return joined(ends, at, by_or=False)


def outside(term: Expression, low: Expression, high: Expression, at: int) -> Expression:
    """NOT BETWEEN low AND high."""
    ends = [ordered(term, low, "<", at), ordered(term, high, ">", at)]
    return joined(ends, at, by_or=True)


def among(term: Expression, texts: list[str], at: int, *, is_not: bool) -> Expression:
    """IN or NOT IN a list of texts, for a property."""
    if term.name is None:
        raise BadFilter("IN asks for a property on its left", at)
    run, wanted = term.run, frozenset(texts)

    def look(get: PropertyGetter) -> Value:
        found = run(get)
        return None if found is None else (found in wanted) is not is_not

    return _made(look, at, term)


def holding(term: Expression, how: str, part: str, at: int, *, is_not: bool) -> Expression:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT: never unknown, false for what is no text."""
    run = term.run

    def look(get: PropertyGetter) -> Value:
        if not part:
            return False
        found = run(get)
        if not isinstance(found, str):
            return False
        if how == "CONTAINS":
            holds = part in found
        else:
            holds = found.startswith(part) if how == "STARTSWITH" else found.endswith(part)
        return holds is not is_not

    return _made(look, at, term)


def _made(run: Evaluate, at: int, *parts: Expression) -> Expression:
    size = 1 + sum(part.size for part in parts)
    return Expression(run, _deeper(at, *parts), size, is_condition=True)


def _deeper(at: int, *parts: Expression) -> int:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise BadFilter(f"the filter is nested deeper than {DEPTH_MAX}", at)
    return depth
