"""How a header class and the `extFields` of a command become each other.

A header class is a dataclass: its annotations are the types on the wire, a field without default
is mandatory, and a field's wire name is its own in camelCase unless `wire_names` says otherwise.
The plan is made once per class, at its first use. Knows no command and no code.
Java: CommandCustomHeader, RemotingCommand.makeCustomHeaderToNet/decodeCommandCustomHeader.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

from cometmq.errors import BadHeader

WireNames = Mapping[str, str]
"""Field name to wire name, where camelCase is not it."""

Long = Annotated[int, 64]
"""A 64-bit number; a plain `int` has 32 bits."""

_is_integer = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_Parse = Callable[[str], Any]
_MISSING = dataclasses.MISSING


@dataclasses.dataclass(slots=True, kw_only=True)
class Header:
    """Base of all header classes."""

    wire_names: ClassVar[WireNames] = {}

    @classmethod
    def decode(cls, ext: Mapping[str, str]) -> Self:
        """Read the fields; raises BadHeader when a mandatory one is missing or a value is wrong.

        Fields that the class does not know are ignored.
        """
        plan = _plans.get(cls) or _plan(cls)
        fields, values = plan.fields, {}
        wire = text = ""
        try:
            for wire, text in ext.items():  # what came, not what could come: 2 us less for a pull
                if wire in fields:
                    name, parse = fields[wire]
                    values[name] = parse(text) if parse else text
        except ValueError as error:
            raise BadHeader(wire, f"is {text[:40]!r}, which is {error}") from None
        if not plan.mandatory <= values.keys():
            raise BadHeader(next(wire for wire in fields if _is_missing(plan, values, wire)))
        return cls(**values)

    def encode(self) -> dict[str, str]:
        """Return the fields as they go out; those that are None are left out."""
        fields: dict[str, str] = {}
        plan = _plan(type(self))
        for wire, value in zip(plan.fields, plan.values_of(self), strict=True):
            if value is None:
                continue
            kind = type(value)
            if kind is str:
                fields[wire] = value
            elif kind is bool:
                fields[wire] = "true" if value else "false"
            else:
                fields[wire] = str(value)
        return fields


class _Plan(NamedTuple):
    """How one class goes to the wire and comes from it."""

    fields: dict[str, tuple[str, _Parse | None]]
    """Wire name to name and parser (None for texts)."""
    mandatory: frozenset[str]
    values_of: Callable[[Header], tuple[Any, ...]]


_plans: dict[type, _Plan] = {}


def _plan(cls: type[Header]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[Header]) -> _Plan:
    hints = get_type_hints(cls, include_extras=True)
    found = dataclasses.fields(cls)
    fields = {
        cls.wire_names.get(field.name) or camel_case(field.name): (
            field.name,
            _parser(hints[field.name]),
        )
        for field in found
    }
    mandatory = frozenset(
        field.name
        for field in found
        if field.default is _MISSING and field.default_factory is _MISSING
    )
    return _Plan(fields, mandatory, _values_getter([field.name for field in found]))


def _is_missing(plan: _Plan, values: Mapping[str, Any], wire: str) -> bool:
    name = plan.fields[wire][0]
    return name in plan.mandatory and name not in values


def _values_getter(names: list[str]) -> Callable[[Header], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda header: tuple([getattr(header, name) for name in names])


def camel_case(name: str) -> str:
    """Return the wire name of a field: `queue_offset` is `queueOffset` there."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _parser(hint: object) -> _Parse | None:
    for kind in (hint, *get_args(hint)):
        if kind == Long:
            return _int64
        if kind in _PARSERS:
            return _PARSERS[kind]
    raise TypeError(f"no wire form for {hint!r}")


def _int32(text: str) -> int:
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    value = _integer(text)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError("no 32-bit number")
    return value


def _int64(text: str) -> int:
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    value = _integer(text)
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise ValueError("no 64-bit number")
    return value


def _integer(text: str) -> int:
    if not _is_integer(text):
        raise ValueError("no whole number")
    return int(text)


def _bool(text: str) -> bool:
    return text.lower() == "true"


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("no number") from None


_PARSERS: dict[object, _Parse | None] = {str: None, int: _int32, bool: _bool, float: _float}
