"""Keys and TLS of the commands that ask brokers: keys from the environment, the rest as options.

A command takes `@security_options` and gets `options`: those of the source that are about these.
Invariant: a key is no argument, where every user of the machine could read it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES = {
    "accessKey": "COMETMQ_ACCESS_KEY",
    "secretKey": "COMETMQ_SECRET_KEY",
    "securityToken": "COMETMQ_SECURITY_TOKEN",
}
_FILE = click.Path(dir_okay=False)
_OPTIONS = {
    "tls": click.option(
        "--tls",
        is_flag=True,
        help="Encrypt the connections. For brokers that ask for keys set COMETMQ_ACCESS_KEY and "
        "COMETMQ_SECRET_KEY (and COMETMQ_SECURITY_TOKEN).",
    ),
    "tlsCaFile": click.option(
        "--tls-ca-file", type=_FILE, help="With --tls: whom to trust.  [default: the system's]"
    ),
    "tlsCertFile": click.option(
        "--tls-cert-file", type=_FILE, help="With --tls: a certificate of this client."
    ),
    "tlsKeyFile": click.option(
        "--tls-key-file", type=_FILE, help="With --tls: its key, where it is in another file."
    ),
    "tlsCheckHostname": click.option(
        "--tls-any-hostname", is_flag=True,
        help="With --tls: take a trusted certificate that is for another address.",
    ),
}  # fmt: skip


def security_options(command: Any) -> Any:
    """Give a command the options of keys and TLS, as the argument `options`."""

    def called(
        *,
        tls: bool,
        tls_ca_file: str | None,
        tls_cert_file: str | None,
        tls_key_file: str | None,
        tls_any_hostname: bool,
        **rest: Any,
    ) -> Any:
        given = {
            **_keys(os.environ),
            "tls": "true" if tls else "",
            "tlsCaFile": tls_ca_file or "",
            "tlsCertFile": tls_cert_file or "",
            "tlsKeyFile": tls_key_file or "",
            "tlsCheckHostname": "false" if tls_any_hostname else "",
        }
        options = {name: text for name, text in given.items() if text}
        return command(options=options, **rest)

    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped: Any = called
    for option in reversed(_OPTIONS.values()):
        wrapped = option(wrapped)
    return wrapped


def _keys(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ.get(variable, "") for name, variable in _VARIABLES.items()}
    for one, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        if found[one] and not found[other]:
            raise SettingsError(f"{_VARIABLES[one]} is set without {_VARIABLES[other]}")
    return found
