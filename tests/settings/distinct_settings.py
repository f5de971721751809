"""Settings whose live numbers are all different, and from all other numbers of a role."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from textwrap import dedent
from typing import Any
from zlib import crc32

from cometmq.settings.keys import is_live, key_of, text_of

_RANGE = 90_000


def live_fields(kind: type) -> list[dataclasses.Field[Any]]:
    """The fields of a settings class that may change while the role runs."""
    return [field for field in dataclasses.fields(kind) if is_live(field)]


def reads_live(holder: object, kind: type) -> bool:
    """Whether the source of the holder's class reads a live field of this class of settings."""
    live = {field.name for field in live_fields(kind)}
    derived = {name: each.fget for name, each in vars(kind).items() if isinstance(each, property)}
    live |= {name for name, get in derived.items() if not live.isdisjoint(read_by(get))}
    return not live.isdisjoint(read_by(type(holder)))


def read_by(code: Any) -> set[str]:
    """The names of all attributes in the source of a class, function or module."""
    tree = ast.parse(dedent(inspect.getsource(code)))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def with_odd_numbers(settings: Any, values: dict[str, object], start: int) -> Any:
    """The settings with another value in each live field: a number from `start` on, or as given.

    A key has one number, in whatever class.
    """
    changes: dict[str, object] = {}
    for field in live_fields(type(settings)):
        before = getattr(settings, field.name)
        if field.name in values:
            changes[field.name] = values[field.name]
        elif isinstance(before, bool):
            changes[field.name] = not before
        else:
            assert isinstance(before, int), f"say which values {field.name} may have"
            changes[field.name] = start + crc32(key_of(field).encode()) % _RANGE
    return dataclasses.replace(settings, **changes)


def as_request(*settings: Any) -> str:
    """The lines of a request that makes the live settings these."""
    return "".join(
        f"{key_of(field)}={text_of(each, field)}\n"
        for each in settings
        for field in live_fields(type(each))
    )
