"""The options that say who a reader or writer of Spark is, and whom it trusts: keys and TLS.

Owns their names, their checks, and what becomes of them in channels and clients. The names of
secrets are such that Spark hides their values in plans, pages and event logs
(`spark.redaction.regex`).
Invariant: no secret is in a text that this module makes, neither an error nor a `repr`.
Java: AclClientRPCHook, TlsSystemConfig
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypedDict

from cometmq.errors import AccessDenied, BrokerError, SettingsError

if TYPE_CHECKING:
    import ssl

    from cometmq.errors import CometError
    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.option_reader import OptionReader
    from cometmq.wire.request_signature import Credentials

_FILES = ("tlsCaFile", "tlsCertFile", "tlsKeyFile")

SECURITY_OPTIONS = ("accessKey", "secretKey", "securityToken", "tls", *_FILES, "tlsCheckHostname")
"""Every option of a connection, of reads and of writes."""


class SecuritySettings(TypedDict):
    """What clients take by name."""

    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Files in PEM form, at paths that hold on driver and executors; empty: none."""

    ca_file: str
    cert_file: str
    key_file: str
    check_hostname: bool

    def context(self) -> ssl.SSLContext:
        """A new context, from the files as they are now; raises SettingsError for a wrong one."""
        import ssl

        try:
            made = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise _unusable("tlsCaFile", self.ca_file, error) from error
        made.check_hostname = self.check_hostname
        if self.cert_file:
            try:
                made.load_cert_chain(self.cert_file, self.key_file or None, self._refuse_passphrase)
            except OSError as error:
                names = "tlsCertFile and tlsKeyFile" if self.key_file else "tlsCertFile"
                files = " and ".join(filter(None, (self.cert_file, self.key_file)))
                raise _unusable(names, files, error) from error
        return made

    def _refuse_passphrase(self) -> NoReturn:
        raise SettingsError(
            f"the key in {self.key_file or self.cert_file} has a passphrase, and nobody is there "
            "to type it: give one without"
        )


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """Plain values, which are pickled to the tasks; the same for every connection."""

    credentials: Credentials | None = None
    tls: TlsOptions | None = None

    def channel(self, addr: str, timeout_s: float) -> BlockingChannel:
        """A new connection; raises ConnectFailed, and SettingsError for a file that is not here."""
        from cometmq.net.blocking_channel import BlockingChannel

        return BlockingChannel(addr, timeout_s, credentials=self.credentials, tls=self._context())

    def client_settings(self) -> SecuritySettings:
        """The same as settings of a client; raises SettingsError for a file that is not here."""
        keys = self.credentials
        return {
            "access_key": keys and keys.access_key,
            "secret_key": keys and keys.secret_key,
            "security_token": keys and keys.security_token,
            "tls": self._context(),
        }

    def _context(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.context()


def security_of(texts: OptionReader) -> ConnectionSecurity:
    """Check these options, the files included; raises SettingsError."""
    return ConnectionSecurity(_credentials(texts), _tls(texts))


def explained(error: CometError) -> CometError:
    """AccessDenied, where a peer refuses this user; any other error as it is."""
    from cometmq.wire.codes import ResponseCode

    if not isinstance(error, BrokerError) or error.code != ResponseCode.NO_PERMISSION:
        return error
    return AccessDenied(
        f"{str(error).rstrip('.')}; where brokers ask for keys, they are the options accessKey and "
        "secretKey, and their user needs the right to do this"
    )


def _credentials(texts: OptionReader) -> Credentials | None:
    if texts.has("accessKey") != texts.has("secretKey"):
        given, missing = ("accessKey", "secretKey")[:: 1 if texts.has("accessKey") else -1]
        raise SettingsError(f"the option {given} is given without {missing}: they go together")
    if not texts.has("accessKey"):
        if texts.has("securityToken"):
            raise SettingsError("the option securityToken needs accessKey and secretKey beside it")
        return None
    from cometmq.wire.request_signature import Credentials

    token = texts.text("securityToken") or None
    return Credentials(texts.text("accessKey"), texts.text("secretKey"), token)


def _tls(texts: OptionReader) -> TlsOptions | None:
    is_on = texts.flag("tls", default=False)
    for name in (*_FILES, "tlsCheckHostname"):
        if texts.has(name) and not is_on:
            raise SettingsError(f"the option {name} has no effect without tls=true")
    if texts.has("tlsKeyFile") and not texts.has("tlsCertFile"):
        raise SettingsError("the option tlsKeyFile needs tlsCertFile, the certificate of the key")
    if not is_on:
        return None
    found = TlsOptions(
        ca_file=texts.text("tlsCaFile"),
        cert_file=texts.text("tlsCertFile"),
        key_file=texts.text("tlsKeyFile"),
        check_hostname=texts.flag("tlsCheckHostname", default=True),
    )
    found.context()
    return found


def _unusable(names: str, files: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"{names}: {files} cannot be used on {socket.gethostname()} ({error.strerror or error}); "
        "driver and executors need it at the same path, in PEM form"
    )
