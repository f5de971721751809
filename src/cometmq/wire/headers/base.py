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
from typing import Annotated, Any, ClassVar, Self, get_args, get_type_hints

from cometmq.errors import BadHeader

WireNames = Mapping[str, str]
"""Field name to wire name, where camelCase is not it."""

Long = Annotated[int, 64]
"""A 64-bit number; a plain `int` has 32 bits."""

_is_integer = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_Parse = Callable[[str], Any]
_Plan = list[tuple[str, str, _Parse, bool]]
_MISSING = dataclasses.MISSING
_plans: dict[type, _Plan] = {}


@dataclasses.dataclass(slots=True, kw_only=True)
class Header:
    """Base of all header classes."""

    wire_names: ClassVar[WireNames] = {}

    @classmethod
    def decode(cls, ext: Mapping[str, str]) -> Self:
        """Read the fields; raises BadHeader when a mandatory one is missing or a value is wrong.

        Fields that the class does not know are ignored.
        """
        values: dict[str, Any] = {}
        for name, wire, parse, is_mandatory in _plan(cls):
            text = ext.get(wire)
            if text is None:
                if is_mandatory:
                    raise BadHeader(wire)
                continue
            try:
                values[name] = parse(text)
            except ValueError as error:
                raise BadHeader(wire, f"is {text[:40]!r}, which is {error}") from None
        return cls(**values)

    def encode(self) -> dict[str, str]:
        """Return the fields as they go out; those that are None are left out."""
        fields: dict[str, str] = {}
        for name, wire, _, _ in _plan(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            if value is True or value is False:
                fields[wire] = "true" if value else "false"
            else:
                fields[wire] = str(value)
        return fields


def _plan(cls: type[Header]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        hints = get_type_hints(cls, include_extras=True)
        plan = _plans[cls] = [
            (
                field.name,
                cls.wire_names.get(field.name) or camel_case(field.name),
                _parser(hints[field.name]),
                field.default is _MISSING and field.default_factory is _MISSING,
            )
            for field in dataclasses.fields(cls)
        ]
    return plan


def camel_case(name: str) -> str:
    """Return the wire name of a field: `queue_offset` is `queueOffset` there."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _parser(hint: object) -> _Parse:
    for kind in (hint, *get_args(hint)):
        if kind == Long:
            return _int64
        if kind in _PARSERS:
            return _PARSERS[kind]
    raise TypeError(f"no wire form for {hint!r}")


def _str(text: str) -> str:
    return text


def _int32(text: str) -> int:
    value = _integer(text)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError("no 32-bit number")
    return value


def _int64(text: str) -> int:
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


_PARSERS: dict[object, _Parse] = {str: _str, int: _int32, bool: _bool, float: _float}
