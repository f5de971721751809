"""How a field of a settings class is known outside: its key, its unit of meaning, its note.

A field's key in `broker.conf` is its name in camelCase unless the field says another. Refuses to
know files and environments; `settings/load.py` reads those. Java: BeanUtils-like setters.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cometmq.errors import SettingsError


def setting(default: Any, *, java: str | None = None, note: str = "") -> Any:
    """Declare a settings field: its default, its key where camelCase is not it, and its note."""
    return dataclasses.field(default=default, metadata={"key": java, "note": note})


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key that stands for the field in a properties file."""
    given = field.metadata.get("key")
    if given is not None:
        return str(given)
    first, *others = field.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def at_least(settings: Any, least: float, *names: str) -> None:
    """Raise SettingsError when one of the named fields is below `least`."""
    for name in names:
        value = getattr(settings, name)
        if value < least:
            raise SettingsError(f"{key_for(settings, name)} is {value}; it must be >= {least:g}")


def one_of(settings: Any, name: str, *allowed: object) -> None:
    """Raise SettingsError when the named field has none of the allowed values."""
    value = getattr(settings, name)
    if value not in allowed:
        choices = ", ".join(str(choice) for choice in allowed)
        raise SettingsError(f"{key_for(settings, name)} is {value!r}; it must be one of {choices}")


def key_for(settings: Any, name: str) -> str:
    """Return the key of the field called `name`."""
    return next(key_of(field) for field in dataclasses.fields(settings) if field.name == name)
