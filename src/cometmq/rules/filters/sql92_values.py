"""The values of an SQL92 filter, and how RocketMQ compares values of different types.

A property is text; a literal is a 32-bit integer (int), a 64-bit one (Long), a double (float), text
or a truth value; None is unknown. A text that is compared with a number or a truth value is parsed
as that type: "2.5" is not an integer, and then the whole filter has no result (ValueError).
Java: ComparisonExpression.__compare, and Integer, Long, Double and Boolean.valueOf.
"""

from __future__ import annotations

import re
from math import copysign, inf, isnan, nan

Value = None | bool | int | float | str

_TRIMMED = "".join(map(chr, range(33)))
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED = {"NaN": nan, "Infinity": inf}
_INT32, _INT64 = 1 << 31, 1 << 63


class Long(int):
    """An integer of 64 bits; a bare int has 32."""

    __slots__ = ()


def integer(text: str) -> int:
    """The number of an integer literal, of 32 bits if it fits; ValueError beyond 64 bits."""
    number = _bounded(text.rstrip("lL"), _INT64)
    return number if number < _INT32 else Long(number)


def double(text: str) -> float:
    """Text as a double, parsed as Java does (Double.valueOf); ValueError when it is none."""
    trimmed = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if found := _HEX.fullmatch(trimmed):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return copysign(inf, -1.0 if trimmed[0] == "-" else 1.0)
    number = _NAMED.get(trimmed.removeprefix("-" if trimmed[:1] == "-" else "+"))
    if number is None:
        raise ValueError(f"{text[:32]!r} is no number")
    return -number if trimmed[0] == "-" else number


def equal(left: Value, right: Value) -> bool | None:
    """Whether two values are equal; two unknown ones are, a known and an unknown one are not."""
    if left is None:
        return True if right is None else None
    return right is not None and compare(left, right) == 0


def order(left: bool | int | float | str, right: bool | int | float | str) -> int:
    """Like `compare`, but two texts are compared as numbers, which they must be."""
    if type(left) is str and type(right) is str:
        return _of_doubles(double(left), double(right))
    return compare(left, right)


def compare(left: bool | int | float | str, right: bool | int | float | str) -> int:
    """Below 0, 0 or above 0; types that cannot be compared give -1."""
    if type(left) is str:
        if type(right) is str:
            return (left > right) - (left < right)
        left = _read_as(left, right)
    elif type(right) is str:
        if type(left) is bool:  # ComparisonExpression.__compare fails with a ClassCastException
            raise ValueError("a truth value is not compared with text on its right")
        right = _read_as(right, left)
    if type(left) is bool or type(right) is bool:
        return left - right if type(left) is type(right) else -1  # type: ignore[operator, return-value]
    if type(left) is float or type(right) is float:
        return _of_doubles(float(left), float(right))
    return (left > right) - (left < right)  # type: ignore[operator]


def _read_as(text: str, like: bool | int | float | str) -> bool | int | float:
    """Text as the type of the value that it is compared with."""
    kind = type(like)
    if kind is int:
        return _bounded(text, _INT32)
    if kind is float:
        return double(text)
    if kind is bool:
        return text.lower() == "true"
    return Long(_bounded(text, _INT64))


def _bounded(text: str, limit: int) -> int:
    """The whole number of a text of sign and digits; ValueError when it is none."""
    assert limit in (_INT32, _INT64), "Java has integers of 32 and of 64 bits here"
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError(f"{text[:32]!r} is no whole number")
    number = int(text)
    if not -limit <= number < limit:
        raise ValueError(f"{text[:32]!r} has too many digits")
    return number


def _of_doubles(left: float, right: float) -> int:
    """Java's order of doubles: 0.0 is above -0.0, NaN above all and the same as itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    if isnan(number):
        return 2
    return 0 if number == 0 and copysign(1.0, number) < 0 else 1
