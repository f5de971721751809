"""What a role's TLS connections are made with: certificates, keys, whom it trusts; read anew.

Owns the two `ssl.SSLContext`s of a role, the server's and the client's, and the state of their
files. Refuses to know connections. Invariant: a context is whole, made of files that go together;
when a changed file is bad, the contexts before it stay and the log says so.
Java: TlsHelper, FileWatchService.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.settings.tls import ENFORCING

if TYPE_CHECKING:
    from cometmq.settings.tls import TlsSettings

log = logging.getLogger(__name__)

RELOAD_S = 2.0
"""Time between looks at the files, seconds."""

_CLIENT_CERTIFICATES = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsContexts:
    """The contexts of one role. Made at its start; `reload` may run in a thread, one at a time."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files; raises SettingsError, one sentence, for one that cannot be used."""
        self.settings = settings
        self.server: ssl.SSLContext | None = None
        """For connections that are accepted; None: no TLS."""
        self.client: ssl.SSLContext | None = None
        """For connections that the role opens; None: without TLS."""
        self.is_enforcing = settings.server_mode == ENFORCING
        self._paths = _paths(settings)
        self._state = self._look()
        self._load()
        for key in settings.without_effect:
            log.warning("%s has no effect beside the other settings of TLS", key)

    @property
    def reads_files(self) -> bool:
        """Whether there is anything to reload."""
        return bool(self._paths)

    def reload(self) -> bool:
        """Look at the files; where one has changed, read all. Whether there are new contexts."""
        state = self._look()
        if state == self._state:
            return False
        self._state = state
        try:
            self._load()
        except SettingsError as error:
            log.error("%s; connections go on with what was read before", error)
            return False
        log.warning("the files of TLS have changed: new connections use what they hold now")
        return True

    def _load(self) -> None:
        settings = self.settings
        server = server_context(settings) if settings.serves else None
        client = client_context(settings) if settings.connects else None
        self.server, self.client = server, client

    def _look(self) -> tuple[object, ...]:
        """What tells a file from the one that was there before; a missing one is None."""
        return tuple(map(_state_of, self._paths))


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context for accepted connections; raises SettingsError."""
    made = _with_bounds(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    _load_certificate(
        made,
        "tls.server",
        settings.server_cert_path,
        settings.server_key_path,
        settings.server_key_password,
    )
    asked = _CLIENT_CERTIFICATES[settings.server_need_client_auth]
    if asked != ssl.CERT_NONE:
        made.verify_mode = asked
        _trust(made, "tls.server.trustCertPath", settings.server_trust_cert_path)
    return made


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context for connections that the role opens; raises SettingsError."""
    made = _with_bounds(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    made.check_hostname = settings.client_check_hostname and settings.client_auth_server
    if not settings.client_auth_server:
        made.verify_mode = ssl.CERT_NONE
    elif settings.client_trust_cert_path:
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's own certificate is enough
        _trust(made, "tls.client.trustCertPath", settings.client_trust_cert_path)
    else:
        made.load_default_certs()
    if settings.client_cert_path:
        _load_certificate(
            made,
            "tls.client",
            settings.client_cert_path,
            settings.client_key_path,
            settings.client_key_password,
        )
    return made


def _with_bounds(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake that the client repeats for nothing
    return context


def _load_certificate(
    context: ssl.SSLContext, side: str, cert: str, key: str, password: str
) -> None:
    def passphrase() -> str:
        if not password:
            raise SettingsError(f"the key in {key or cert} is encrypted: give {side}.keyPassword")
        return password

    try:
        context.load_cert_chain(cert, key or None, passphrase)
    except OSError as error:
        names = f"{side}.certPath and {side}.keyPath" if key else f"{side}.certPath"
        files = " and ".join(filter(None, (cert, key)))
        raise _unusable(names, files, error) from error


def _trust(context: ssl.SSLContext, key: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise _unusable(key, path, error) from error


def _unusable(keys: str, files: str, error: OSError) -> SettingsError:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "they are no certificate and key in PEM form"
        reason = f"{reason}: are they in PEM form, do they go together, is the password right"
    else:
        reason = error.strerror or str(error)
    return SettingsError(f"{keys}: {files} cannot be used ({reason})")


def _paths(settings: TlsSettings) -> tuple[str, ...]:
    server = (settings.server_cert_path, settings.server_key_path, settings.server_trust_cert_path)
    client = (settings.client_cert_path, settings.client_key_path, settings.client_trust_cert_path)
    used = (*(server if settings.serves else ()), *(client if settings.connects else ()))
    return tuple(dict.fromkeys(filter(None, used)))


def _state_of(path: str) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
