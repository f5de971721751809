# ruff: noqa: INP001
"""Writes docs/operate/settings.md from the settings classes, so the page cannot be wrong.

    .venv/bin/python scripts/settings_page.py

Owns the page's words and columns; what a setting is, its default and its note come from
`cometmq.settings`, RocketMQ's defaults from java_defaults.txt beside this file.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from cometmq.cli.serve_commands import STANDALONE
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.java_keys import NO_EFFECT
from cometmq.settings.keys import is_live, key_of
from cometmq.settings.load import env_name_of
from cometmq.settings.logs import LogSettings
from cometmq.settings.monitoring import MonitoringSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.renamed_keys import RENAMED
from cometmq.settings.store import StoreSettings
from cometmq.settings.tls import TlsSettings
from cometmq.settings.unsupported_keys import UNSUPPORTED

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "operate" / "settings.md"
SECTIONS = (
    ("Broker", "broker", BrokerSettings),
    ("Store", "broker", StoreSettings),
    ("Sockets (broker and name server)", "broker", NetSettings),
    ("Access (broker and name server)", "broker", AccessSettings),
    ("Monitoring (broker and name server)", "broker", MonitoringSettings),
    ("Log (broker and name server)", "broker", LogSettings),
    ("Name server", "namesrv", NamesrvSettings),
    ("TLS (broker and name server)", "jvm", TlsSettings),
)
PROPERTIES = {
    "tls.client.authServer": "false",
    "tls.config.file": "/etc/rocketmq/tls.properties",
    "tls.server.authClient": "false",
    "tls.server.mode": "permissive",
    "tls.server.need.client.auth": "none",
    "tls.test.mode.enable": "true",
    **dict.fromkeys(
        (
            *(f"tls.server.{name}" for name in ("certPath", "keyPath", "keyPassword")),
            *(f"tls.client.{name}" for name in ("certPath", "keyPath", "keyPassword")),
            "tls.server.trustCertPath", "tls.client.trustCertPath", "tls.enable",
        ),
        "",
    ),
}  # fmt: skip
"""RocketMQ's defaults of what are properties of the JVM there (TlsSystemConfig)."""

UNITS = (("_ms", "ms"), ("_s", "s"), ("_hours", "h"), ("_pages", "pages"))
COMMAND_DEFAULTS = {
    "broker.brokerName": "(the host's name)",
    "broker.namesrvAddr": "(the variable NAMESRV_ADDR)",
}
"""What the command `broker` puts where neither file nor environment nor options say anything."""
TYPES = {int: "int", bool: "bool", float: "float", str: "text"}

INTRO = """\
# Settings

Made by `scripts/settings_page.py` from the settings classes; a test keeps it fresh.

Settings come from, later ones winning: the defaults below, the file given with `-c` (in RocketMQ's
properties form), environment variables, `--set KEY=VALUE`, and the options of the command. The
variable of `listenPort` is `{env}`, of other keys likewise; case and underscores do not
matter.

- An unknown key is an error that names the nearest known one, with file and line.
- A key of RocketMQ that has no effect here is one warning that says why: see the end of this page.
- A key of RocketMQ that asks for what CometMQ does not have, and that changes what is safe, how
  the store lies on disk, who has access or what is delivered, is an error: [refused
  keys](#refused-keys).
- A bad value is an error that says what it must be.

`same` means that RocketMQ 5.5.0 has the same default; `-` that it has no such key.

What says `yes` under Live may be changed while the role runs (`mqadmin updateBrokerConfig` and
`updateNamesrvConfig`): all keys of a request, or none and the reason. A change is written into the
file given with `-c`, which keeps all else, and the old file becomes `.bak`; without such a file the
answer says that the change lasts until the role stops. Other keys are refused then;
RocketMQ takes them, and ignores those it does not know.
"""

STANDALONE_INTRO = """\
## What `standalone` sets before everything else

`cometmq standalone` is one name server and one broker for one machine. It changes these defaults;
file, environment and options still win. The name server's port is `--namesrv-port`.

| Key | `broker` | `standalone` |
|---|---|---|
"""


RENAMED_INTRO = """\
## Renamed keys

The old name works in this release, with one warning; given beside the present one, in one file,
say, it is an error. A change while the role runs is written to the file under the present name.

| Old name | Present name |
|---|---|
"""

REFUSED_INTRO = """\
## Refused keys

Another value than RocketMQ's default is refused, at the start and by `updateBrokerConfig` and
`updateNamesrvConfig`; the default, or an empty value, changes nothing.

| Key | RocketMQ's default | What another value asks for |
|---|---|---|
"""

NO_EFFECT_INTRO = """\
## Keys without effect

These keys of RocketMQ are accepted with one warning each. They change neither what is safe, nor
the layout of the store, nor access.

"""


def page() -> str:
    """Return the whole page."""
    java = _java_defaults() | {f"jvm.{key}": text for key, text in PROPERTIES.items()}
    parts = [INTRO.format(env=env_name_of("listenPort")), STANDALONE_INTRO + _standalone()]
    seen: set[str] = set()
    for title, role, kind in SECTIONS:
        rows = "".join(_rows(kind, role, java, seen))
        parts.append(f"## {title}\n\n{_HEAD}{rows}")
    parts.append(RENAMED_INTRO + _renamed())
    parts += [REFUSED_INTRO + _refused(), NO_EFFECT_INTRO + _without_effect()]
    return "\n".join(parts)


_HEAD = (
    "| Key | Type | Unit | Default | RocketMQ | Live | What |\n"
    "|---|---|---|---|---|---|---|\n"
)  # fmt: skip


def _rows(kind: type[Any], role: str, java: dict[str, str], seen: set[str]) -> list[str]:
    hints, rows = get_type_hints(kind), []
    for field in fields(kind):
        key = key_of(field)
        if f"{role}.{key}" in seen:  # two packages of one broker share it
            continue
        seen.add(f"{role}.{key}")
        shown = COMMAND_DEFAULTS.get(f"{role}.{key}") or _shown(field.default)
        theirs = java.get(f"{role}.{key}")
        cells = (
            f"`{key}`",
            TYPES[hints[field.name]],
            _unit(field.name),
            shown,
            _theirs(shown, theirs),
            "yes" if is_live(field) else "",
            field.metadata["note"],
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    return rows


def _theirs(shown: str, theirs: str | None) -> str:
    if theirs is None:
        return "-"
    theirs = _shown(theirs)
    return "same" if theirs == shown else theirs


def _standalone() -> str:
    kinds = [kind for _, role, kind in SECTIONS if role == "broker"]
    ours = {key_of(field): _shown(field.default) for kind in kinds for field in fields(kind)}
    ours |= {key.removeprefix("broker."): shown for key, shown in COMMAND_DEFAULTS.items()}
    return "".join(f"| `{key}` | {ours[key]} | `{value}` |\n" for key, value in STANDALONE.items())


def _renamed() -> str:
    return "".join(f"| `{old}` | `{present}` |\n" for old, present in RENAMED.items())


def _refused() -> str:
    return "".join(
        f"| `{key}` | {' or '.join(map(_shown, default.split('|')))} | {asks_for} |\n"
        for key, (default, asks_for) in UNSUPPORTED.items()
    )


def _without_effect() -> str:
    keys: dict[str, list[str]] = {}
    for key, reason in NO_EFFECT.items():
        keys.setdefault(reason, []).append(f"`{key}`")
    return "".join(f"- **{reason}**: {', '.join(names)}\n" for reason, names in keys.items())


def _unit(name: str) -> str:
    if "_bytes" in name:
        return "bytes"
    if "_seconds" in name:
        return "s"
    if "_percent" in name:
        return "%"
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


def _shown(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    if text.startswith("("):  # in words
        return text
    return f"`{text}`" if text else "empty"


def _java_defaults() -> dict[str, str]:
    lines = (HERE / "java_defaults.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(" = ") for line in lines if not line.startswith("#")]
    return {key: value for key, _, value in pairs}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
