"""Texts and words from outside to settings objects: the file, the environment, the command line.

Owns what is known, what is ignored with a warning, and every sentence about a bad key or value.
Refuses to read files and environments: their contents are arguments. Invariant: either all settings
are good or SettingsError says which one is not, and where.
Precedence: defaults < file < environment < command line.
Java: MixAll.properties2Object, which swallows what it does not understand; this does not.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from cometmq.errors import SettingsError
from cometmq.settings.java_keys import HONOURED, JAVA_KEYS, NO_EFFECT
from cometmq.settings.keys import BadValueError, is_secret, key_of
from cometmq.settings.properties import parse
from cometmq.settings.renamed_keys import RENAMED, renaming
from cometmq.settings.unsupported_keys import UNSUPPORTED, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ENV_PREFIX = "COMETMQ_"
_NEAR_ENOUGH = 0.6
_MISSPELT = 0.85

S = TypeVar("S")
_BOOLS = {"true": True, "false": False}


class RawSetting(NamedTuple):
    """One value from outside: its key, its text, and the place to name when it is bad."""

    key: str
    text: str
    where: str


class KnownSettingKeys(NamedTuple):
    """The keys of some settings classes: the type of each field, by class, and by key."""

    fields: dict[str, list[tuple[type, str]]]
    types: dict[str, Any]
    secrets: set[str]
    """Keys whose values no text may show."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Good settings, one object a class, and what was ignored on the way."""

    objects: dict[type, Any]
    warnings: tuple[str, ...]

    def of(self, kind: type[S]) -> S:
        """Return the object of this class."""
        found = self.objects[kind]
        assert isinstance(found, kind), kind
        return found


def load(kinds: Iterable[type], *layers: Iterable[RawSetting]) -> LoadedSettings:
    """Make one object of each class; a later layer overrides an earlier one, key by key.

    Raises SettingsError for an unknown key (naming the nearest known one), for a bad value, for a
    value of one of RocketMQ's keys that asks for what CometMQ does not have, and where a layer has
    a setting under its old name and its present one.
    """
    kinds = tuple(kinds)
    known = _known(kinds)
    warnings: list[str] = []
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for layer in layers:
        for given in _with_present_names(layer, known, warnings):
            if _is_ours(given, known, warnings):
                is_secret = given.key in known.secrets
                values[given.key] = _value(given, known.types[given.key], is_secret=is_secret)
                places[given.key] = given.where
    objects: dict[type, Any] = {}
    for kind in kinds:
        mine = {
            name: values[key]
            for key, owners in known.fields.items()
            for owner, name in owners
            if owner is kind and key in values
        }
        try:
            objects[kind] = kind(**mine)
        except BadValueError as error:
            raise SettingsError(f"{places.get(error.key, 'settings')}: {error}") from None
    return LoadedSettings(objects, tuple(warnings))


def from_text(text: str, name: str) -> list[RawSetting]:
    """Return what a properties file says; `name` is how to call it in messages.

    Some of RocketMQ's own files open with a licence in an XML comment, whose words would all be
    keys: only its first line is returned, which can be none.
    """
    found: list[RawSetting] = []
    in_comment = False
    for key, value, line in parse(text):
        if not in_comment:
            found.append(RawSetting(key, value, f"{name}:{line}"))
        in_comment = (in_comment or key.startswith("<!--")) and "-->" not in f"{key} {value}"
    return found


def from_environment(environment: Mapping[str, str], kinds: Iterable[type]) -> list[RawSetting]:
    """Return what variables such as COMETMQ_LISTEN_PORT say about these classes.

    Case and underscores do not matter. Keys of RocketMQ that no role honours come along, for `load`
    to warn of or to refuse. A variable that nearly is one is a SettingsError; all other variables
    are none of ours.
    """
    known = _known(tuple(kinds)).fields
    old = [key for key, present in RENAMED.items() if present in known]
    every = (*known, *old, *(JAVA_KEYS - HONOURED))
    keys = {key.replace(".", "").lower(): key for key in every}
    java = {key.lower() for key in HONOURED}
    found: list[RawSetting] = []
    for variable, text in environment.items():
        if not variable.startswith(ENV_PREFIX):
            continue
        plain = variable.removeprefix(ENV_PREFIX).replace("_", "").lower()
        if plain in keys:
            found.append(RawSetting(keys[plain], text, f"environment variable {variable}"))
        elif plain not in java:
            for near in difflib.get_close_matches(plain, keys, n=1, cutoff=_MISSPELT):
                raise SettingsError(
                    f"environment variable {variable}: no such setting; "
                    f"did you mean {env_name_of(keys[near])}?"
                )
    return found


def from_options(options: Mapping[str, object]) -> list[RawSetting]:
    """Return what the command line says: key to value; None means not given."""
    return [
        RawSetting(key, str(value), "command line")
        for key, value in options.items()
        if value is not None
    ]


def env_name_of(key: str) -> str:
    """Return the environment variable of a key: COMETMQ_LISTEN_PORT for listenPort."""
    key = key.replace(".", "_")
    words = "".join(f"_{c}" if c.isupper() else c for c in key)
    return ENV_PREFIX + words.upper()


def _known(kinds: tuple[type, ...]) -> KnownSettingKeys:
    fields: dict[str, list[tuple[type, str]]] = {}
    types: dict[str, Any] = {}
    secrets: set[str] = set()
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            key = key_of(field)
            fields.setdefault(key, []).append((kind, field.name))
            types[key] = hints[field.name]
            if is_secret(field):
                secrets.add(key)
    return KnownSettingKeys(fields, types, secrets)


def _with_present_names(
    layer: Iterable[RawSetting], known: KnownSettingKeys, warnings: list[str]
) -> Iterator[RawSetting]:
    """What a layer says, each setting under its present name."""
    layer = tuple(layer)
    places = {given.key: given.where for given in layer}
    for given in layer:
        present = RENAMED.get(given.key)
        if present not in known.fields:
            yield given
            continue
        if present in places:
            raise SettingsError(
                f"{given.where}: {given.key} is the old name of {present}, which is given too "
                f"({places[present]}); remove it"
            )
        warnings.append(f"{given.where}: {renaming(given.key)}")
        yield given._replace(key=present)


def _is_ours(given: RawSetting, known: KnownSettingKeys, warnings: list[str]) -> bool:
    key = given.key
    if key in known.fields:
        return True
    if key in UNSUPPORTED:
        if reason := refusal(key, given.text):
            raise SettingsError(f"{given.where}: {reason}")
        return False
    if key in JAVA_KEYS:
        reason = NO_EFFECT.get(key, "it is a setting of the other role")
        warnings.append(f"{given.where}: {key} has no effect here: {reason}")
        return False
    if not (key.isidentifier() or key.startswith("tls.")):
        warnings.append(f"{given.where}: ignoring {key[:40]!r}, which cannot be a setting")
        return False
    raise SettingsError(f"{given.where}: unknown setting {key}{_hint(key, known)}")


def _hint(key: str, known: KnownSettingKeys) -> str:
    for candidates in (known.fields, JAVA_KEYS):
        by_lower = {candidate.lower(): candidate for candidate in candidates}
        for near in difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=_NEAR_ENOUGH):
            return f"; did you mean {by_lower[near]}?"
    return "; no known setting is spelt like it"


def _value(given: RawSetting, kind: Any, *, is_secret: bool) -> Any:
    text = given.text.strip()
    if any("\ud800" <= char <= "\udfff" for char in text):
        shown = "(not shown)" if is_secret else text.encode("utf-8", "surrogateescape")
        raise SettingsError(
            f"{given.where}: {given.key} is {shown!r}, which is no UTF-8; write it in UTF-8"
        )
    try:
        if kind is bool:
            return _BOOLS[text.lower()]
        if kind is int:
            return _number(text)
        if kind is float:
            return float(text)
    except (ValueError, KeyError):
        rule = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise SettingsError(f"{given.where}: {BadValueError(given.key, text, rule)}") from None
    assert kind is str, f"{given.key} has a type that no text can have: {kind!r}"
    return text


def _number(text: str) -> int:
    number = int(text)
    if abs(number) >> 63:
        raise ValueError("no computer has so many of anything")
    return number
