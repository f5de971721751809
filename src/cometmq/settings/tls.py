"""Settings of TLS, by RocketMQ's names: of what a role listens with, and of what it connects with.

Refuses to know files and the `ssl` module; `net/tls_contexts.py` reads the files. Invariant: a
combination that would check less than it says does not exist.
Java: TlsSystemConfig, whose values are properties of the JVM, and NettyClientConfig.useTLS.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.settings.keys import check, one_of, setting

DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Who is spoken to with TLS, by which certificates, and whom a role trusts."""

    server_mode: str = setting(
        PERMISSIVE,
        java="tls.server.mode",
        note="`disabled`, `permissive` (TLS and plain connections at one port; TLS needs "
        "`tls.server.certPath`) or `enforcing` (TLS only)",
    )
    server_cert_path: str = setting(
        "", java="tls.server.certPath", note="PEM file: the server's certificate, then its issuers"
    )
    server_key_path: str = setting(
        "", java="tls.server.keyPath", note="PEM file: its key; empty: in the certificate's file"
    )
    server_key_password: str = setting(
        "", java="tls.server.keyPassword", note="of an encrypted key", secret=True
    )
    server_need_client_auth: str = setting(
        "none",
        java="tls.server.need.client.auth",
        note="certificates of clients: `none` is asked for, `optional`, or `require`",
    )
    server_auth_client: bool = setting(
        default=False,
        java="tls.server.authClient",
        note="clients' certificates are checked; `true` where they are asked for",
    )
    server_trust_cert_path: str = setting(
        "",
        java="tls.server.trustCertPath",
        note="PEM file: the authorities that issue clients' certificates",
    )
    enable: str = setting(
        "",
        java="tls.enable",
        note="whether the role connects to others (a broker to name servers) with TLS; empty: only "
        "where `tls.server.mode` is `enforcing`",
    )
    use_tls: str = setting("", java="useTLS", note="the same; goes before `tls.enable`")
    client_auth_server: bool = setting(
        default=True,
        java="tls.client.authServer",
        note="the certificates of servers that the role connects to are checked",
    )
    client_trust_cert_path: str = setting(
        "",
        java="tls.client.trustCertPath",
        note="PEM file: the authorities that issue servers' certificates; empty: the system's",
    )
    client_check_hostname: bool = setting(
        default=True,
        java="tls.client.checkHostname",
        note="a server's certificate must be for the address that is connected to",
    )
    client_cert_path: str = setting(
        "", java="tls.client.certPath", note="PEM file: the certificate shown to servers"
    )
    client_key_path: str = setting(
        "", java="tls.client.keyPath", note="PEM file: its key; empty: in the certificate's file"
    )
    client_key_password: str = setting(
        "", java="tls.client.keyPassword", note="of an encrypted key", secret=True
    )
    config_file: str = setting(
        "", java="tls.config.file", note="a file with `tls.` keys; read after the one of `-c`"
    )
    test_mode_enable: bool = setting(
        default=False,
        java="tls.test.mode.enable",
        note="must be `false`: there are no certificates that anybody trusts",
    )

    def __post_init__(self) -> None:
        """Check every value, and what they are together."""
        one_of(self, "server_mode", DISABLED, PERMISSIVE, ENFORCING)
        one_of(self, "server_need_client_auth", "none", "optional", "require")
        one_of(self, "enable", "", "true", "false")
        one_of(self, "use_tls", "", "true", "false")
        rule = "false: make certificates, and name them by tls.server.certPath"
        check(self, "test_mode_enable", not self.test_mode_enable, rule)
        self._check_server()
        self._check_client()

    def _check_server(self) -> None:
        cert, mode = self.server_cert_path, self.server_mode
        rule = "disabled or permissive where tls.server.certPath is empty"
        check(self, "server_mode", bool(cert) or mode != ENFORCING, rule)
        rule = "empty where tls.server.certPath is"
        check(self, "server_key_path", bool(cert or not self.server_key_path), rule)
        asked = self.server_need_client_auth != "none"
        rule = "none where tls.server.authClient is false: nobody would check what clients show"
        check(self, "server_need_client_auth", self.server_auth_client or not asked, rule)
        rule = "a file where tls.server.need.client.auth asks for certificates"
        check(self, "server_trust_cert_path", bool(self.server_trust_cert_path or not asked), rule)

    def _check_client(self) -> None:
        rule = "empty where tls.client.certPath is"
        check(
            self, "client_key_path", bool(self.client_cert_path or not self.client_key_path), rule
        )

    @property
    def serves(self) -> bool:
        """Whether connections with TLS are accepted."""
        return bool(self.server_cert_path) and self.server_mode != DISABLED

    @property
    def connects(self) -> bool:
        """Whether connections to others are made with TLS."""
        given = self.use_tls or self.enable
        return given == "true" if given else self.server_mode == ENFORCING

    @property
    def without_effect(self) -> list[str]:
        """Keys that are given and change nothing, beside what else is given."""
        asks = self.serves and self.server_need_client_auth != "none"
        found = {
            "tls.server.certPath": self.server_cert_path and not self.serves,
            "tls.server.trustCertPath": self.server_trust_cert_path and not asks,
            "tls.server.authClient": self.server_auth_client and not asks,
            "tls.client.certPath": self.client_cert_path and not self.connects,
            "tls.client.trustCertPath": self.client_trust_cert_path
            and not (self.connects and self.client_auth_server),
        }
        return [key for key, is_idle in found.items() if is_idle]
