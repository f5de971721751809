"""How a field of a settings class is known outside: its key, its note, and checks on its value.

A field's key in `broker.conf` is its name in camelCase unless the field says another. Refuses to
know files and environments; `settings/load.py` reads those. Java: MixAll.properties2Object.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cometmq.errors import SettingsError


class BadValueError(SettingsError):
    """A value breaks the rule of its setting; `key` says which."""

    def __init__(self, key: str, value: object, rule: str) -> None:
        self.key = key
        super().__init__(f"{key} is {value!r}; it must be {rule}")


def setting(
    default: Any,
    *,
    java: str | None = None,
    note: str = "",
    live: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a settings field: its default, its key where camelCase is not it, and its note.

    `live`: it may change while the role runs. `secret`: no text shows its value.
    """
    return dataclasses.field(
        default=default,
        repr=not secret,
        metadata={"key": java, "note": note, "live": live, "secret": secret},
    )


def is_live(field: dataclasses.Field[Any]) -> bool:
    """Whether the field may change while the role runs."""
    return bool(field.metadata.get("live"))


def is_secret(field: dataclasses.Field[Any]) -> bool:
    """Whether no text may show the field's value."""
    return bool(field.metadata.get("secret"))


def text_of(settings: Any, field: dataclasses.Field[Any]) -> str:
    """Return a field's value as a properties file has it."""
    value = getattr(settings, field.name)
    if isinstance(value, bool):
        return str(value).lower()
    return _text_of_number(value) if isinstance(value, float) else str(value)


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key that stands for the field in a properties file."""
    given = field.metadata.get("key")
    if given is not None:
        return str(given)
    first, *others = field.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def at_least(settings: Any, least: float, *names: str) -> None:
    """Raise BadValueError when one of the named fields is below `least`."""
    for name in names:
        value = getattr(settings, name)
        if not value >= least:  # not `<`: a float may be no number at all
            raise BadValueError(_key(settings, name), value, f"at least {_text_of_number(least)}")


def between(settings: Any, least: float, most: float, *names: str) -> None:
    """Raise BadValueError when one of the named fields is not within the two."""
    for name in names:
        value = getattr(settings, name)
        if not least <= value <= most:
            rule = f"between {_text_of_number(least)} and {_text_of_number(most)}"
            raise BadValueError(_key(settings, name), value, rule)


def one_of(settings: Any, name: str, *allowed: object) -> None:
    """Raise BadValueError when the named field has none of the allowed values."""
    value = getattr(settings, name)
    if value not in allowed:
        choices = " or ".join(str(choice) for choice in allowed)
        raise BadValueError(_key(settings, name), value, choices)


def check(settings: Any, name: str, is_good: bool, rule: str) -> None:
    """Raise BadValueError, which names the rule, unless the named field is good."""
    if not is_good:
        raise BadValueError(_key(settings, name), getattr(settings, name), rule)


def _text_of_number(value: float) -> str:
    """A number with all its digits, and without a point where it is whole."""
    return repr(value).removesuffix(".0")


def _key(settings: Any, name: str) -> str:
    return next(key_of(field) for field in dataclasses.fields(settings) if field.name == name)
