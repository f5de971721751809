"""Reads options of `format("rocketmq")` from Spark's texts: numbers, flags, names, addresses.

Owns the checks that any option needs, and their error messages; which options there are is said by
the caller, the source or the sink. Option names ignore case, because Spark passes them in lower
case.
Invariant: an unknown option is an error that names the nearest known one; it is never ignored.
Imports only the standard library, because every process that looks up data sources loads it.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KAFKA_WORDS: dict[str, str] = {
    "kafka.bootstrap.servers": "namesrv, the addresses of the name servers",
    "bootstrap.servers": "namesrv, the addresses of the name servers",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "includeheaders": "includeProperties",
    "kafka.security.protocol": "tls=true for TLS, and accessKey and secretKey for a user",
    "kafka.sasl.jaas.config": "accessKey and secretKey",
    "kafka.ssl.truststore.location": "tlsCaFile, a file in PEM form",
    "kafka.ssl.keystore.location": "tlsCertFile and tlsKeyFile, files in PEM form",
    "kafka.ssl.endpoint.identification.algorithm": "tlsCheckHostname=false",
    "fetchoffset.numretries": "retryForMs",
    "fetchoffset.retryintervalms": "retryForMs",
    "kafkaconsumer.polltimeoutms": "timeoutMs",
}
"""Options of Spark's Kafka source, in lower case, and what to write here instead: ours first."""

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d|)")
_UNIT_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionReader:
    """The texts given by the user; each method reads one option and raises SettingsError."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._texts = {key.lower(): value.strip() for key, value in given.items()}
        names = {name.lower(): name for name in known}
        for key in self._texts:
            if key not in names:
                raise SettingsError(f'format("rocketmq") has no option {key}: {_hint(key, names)}')

    def has(self, name: str) -> bool:
        """Whether the option is given, and not empty."""
        return bool(self.text(name))

    def text(self, name: str, default: str = "") -> str:
        """The text of an option without spaces around it."""
        return self._texts.get(name.lower(), "") or default

    def one_of(self, *names: str) -> str:
        """The one of these options that is given, or nothing; refuses two."""
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise SettingsError(f"the options {' and '.join(given)} exclude each other: give one")
        return given[0] if given else ""

    def whole(self, name: str, default: int, *, least: int) -> int:
        """A whole number from `least` up."""
        text = self.text(name)
        if text and (not text.isdecimal() or int(text) < least):
            raise SettingsError(
                f"the option {name} is {text!r}, not a whole number from {least} up"
            )
        return int(text) if text else default

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of some words, in any case."""
        text = self.text(name, default).lower()
        if text not in allowed:
            raise SettingsError(f"the option {name} is {text!r}: write {' or '.join(allowed)}")
        return text

    def duration_ms(self, name: str, default: str) -> int:
        """A time such as `500ms`, `30s`, `15m`, `1h`; a bare number is milliseconds."""
        text = self.text(name, default).lower()
        parts = _DURATION.fullmatch(text)
        if parts is None:
            raise SettingsError(
                f"the option {name} is {text!r}: write a time such as 500ms, 30s, 15m or 1h"
            )
        return int(parts[1]) * _UNIT_MS[parts[2]]

    def names(self, name: str) -> tuple[str, ...]:
        """Names separated by commas, spaces around them left out."""
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def addresses(self, name: str, variable: str) -> tuple[str, ...]:
        """Addresses `host:port` separated by `;` or commas, else those of a variable."""
        text = self.text(name) or os.environ.get(variable, "")
        found = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
        if not found:
            raise SettingsError(
                f'format("rocketmq") needs the option {name}, the addresses of the name servers '
                "(for example 127.0.0.1:9876; several are separated by ;)"
            )
        for address in found:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise SettingsError(f"the option {name} holds {address!r}, which is no host:port")
        return found


def _hint(key: str, names: Mapping[str, str]) -> str:
    if key in KAFKA_WORDS:
        ours = KAFKA_WORDS[key]
        has_ours = re.split(r"\W", ours)[0].lower() in names
        instead = f"write {ours}" if has_ours else "and has no meaning here: leave it out"
        return f"that is Kafka's word, {instead}"
    if key.startswith("kafka."):
        return "it sets Kafka's client, and has no meaning here: leave it out"
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    return f"did you mean {names[near[0]]}" if near else f"known are {', '.join(names.values())}"
