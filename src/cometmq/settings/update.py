"""Settings of a running role changed from outside: what may change, and what becomes of it.

Owns the rule that only fields marked live change, and that all of a request holds or none of it.
Refuses to know files and requests. Keys of RocketMQ without effect here are warnings or refused, as
they are at the start.
Java: Configuration.update, which takes what it understands and is silent on the rest.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.errors import SettingsError
from cometmq.settings.keys import is_live, is_secret, key_of, text_of
from cometmq.settings.load import from_options, from_text, load
from cometmq.settings.tls import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECRET = frozenset(
    {"brokerConfigPath", "configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
"""Keys that are not changed from outside, whatever the role."""

HIDDEN = "******"
"""Stands for a secret where settings are shown."""

_TLS = frozenset(key_of(field) for field in dataclasses.fields(TlsSettings))
"""Keys that no request changes or sees."""


class ForbiddenKeyError(SettingsError):
    """A key that nobody may change from outside."""


class SettingsUpdate(NamedTuple):
    """New settings, in the order of the old ones; the values that changed; what was ignored."""

    settings: tuple[Any, ...]
    values: dict[str, str]
    warnings: tuple[str, ...]


_SOURCE = "the request"


def table_of(settings: Sequence[Any], *, shows_secrets: bool = False) -> dict[str, str]:
    """Return all settings by key, sorted, as a properties file has them; stars for a secret."""
    found: dict[str, str] = {}
    for one in settings:
        for field in dataclasses.fields(one):
            text = text_of(one, field)
            is_hidden = text and is_secret(field) and not shows_secrets
            found[key_of(field)] = HIDDEN if is_hidden else text
    return dict(sorted(found.items()))


def update(settings: Sequence[Any], text: str) -> SettingsUpdate:
    """Return the settings as the lines `key=value` of a request make them.

    Raises ForbiddenKeyError for a key that is not changed from outside, and SettingsError for an
    unknown key, a bad or unsupported value, or another value of a key that changes at the next
    start only.
    """
    given = [one._replace(where=_SOURCE) for one in from_text(text, "")]
    for one in given:
        if one.key in _SECRET:
            raise ForbiddenKeyError(f"{one.key} cannot be changed from outside")
        if one.key in _TLS:
            raise SettingsError(_at_the_start(one.key))
    before = table_of(settings, shows_secrets=True)
    kinds = tuple(type(one) for one in settings)
    loaded = load(kinds, from_options(before), given)
    after = tuple(loaded.of(kind) for kind in kinds)
    values = {
        key: value
        for key, value in table_of(after, shows_secrets=True).items()
        if value != before[key]
    }
    fixed = {
        key_of(field) for kind in kinds for field in dataclasses.fields(kind) if not is_live(field)
    }
    for key in values:
        if key in fixed:
            raise SettingsError(_at_the_start(key))
    return SettingsUpdate(after, values, loaded.warnings)


def _at_the_start(key: str) -> str:
    return f"{key} is read at the start only; change it in the settings file and start again"
