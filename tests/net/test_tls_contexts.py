"""Certificates that change while a role runs, and files that cannot be used."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import SettingsError
from cometmq.net.handler import Reply
from cometmq.net.tls_contexts import TlsContexts
from cometmq.settings.tls import ENFORCING, TlsSettings
from net.certificates import PASSWORD, certificates
from net.serving import Raw, Served, run, serving

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command

ECHO = 11


def echo(command: Command, _connection: Connection) -> Reply:
    return Reply(body=command.body)


def copied(pair: tuple[Path, Path], place: Path) -> TlsSettings:
    """Settings of a server whose files are copies of these, in a directory of their own."""
    cert, key = place / "cert.pem", place / "key.pem"
    shutil.copy(pair[0], cert)
    shutil.copy(pair[1], key)
    return TlsSettings(
        server_mode=ENFORCING, server_cert_path=str(cert), server_key_path=str(key), enable="false"
    )


async def connect(served: Served, tls: ssl.SSLContext) -> Raw:
    raw = Raw(*await asyncio.open_connection("127.0.0.1", served.port, ssl=tls))
    served.raws.append(raw)
    return raw


def shown(raw: Raw) -> str:
    """The name in the certificate that the server has shown."""
    subject = raw.writer.get_extra_info("peercert")["subject"]
    return str(dict(part[0] for part in subject)["commonName"])


def test_a_changed_certificate_is_for_new_connections_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = certificates()
    given, tls = copied(found.server, tmp_path), found.ours.client()

    async def scenario() -> None:
        contexts = TlsContexts(given)
        async with serving({ECHO: echo}, tls=contexts) as served:
            before = await connect(served, tls)
            assert not contexts.reload()
            copied(found.client, tmp_path)
            assert contexts.reload()
            after = await connect(served, tls)
            assert [shown(before), shown(after)] == ["server", "client"]
            for raw in (before, after):
                assert (await raw.call(ECHO, body=b"x")).body == b"x"

    run(scenario())
    assert "the files of TLS have changed" in caplog.text


@pytest.mark.parametrize("broken", ["cut", "gone", "of another key"])
def test_a_broken_file_changes_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    found = certificates()
    given, tls = copied(found.server, tmp_path), found.ours.client()
    cert = tmp_path / "cert.pem"

    async def scenario() -> None:
        contexts = TlsContexts(given)
        async with serving({ECHO: echo}, tls=contexts) as served:
            if broken == "cut":
                cert.write_text(cert.read_text()[:300])
            elif broken == "gone":
                cert.unlink()
            else:
                shutil.copy(found.client[0], cert)
            assert [contexts.reload() for _ in range(3)] == [False] * 3
            raw = await connect(served, tls)
            assert (shown(raw), (await raw.call(ECHO)).code) == ("server", 0)
            copied(found.client, tmp_path)
            assert contexts.reload()
            assert shown(await connect(served, tls)) == "client"

    run(scenario())
    said = [
        text for text in caplog.messages if "connections go on with what was read before" in text
    ]
    assert len(said) == 1
    assert said[0].startswith("tls.server.certPath and tls.server.keyPath: ")


def test_a_key_with_a_password_is_opened_with_it() -> None:
    cert, key = certificates().encrypted
    given = TlsSettings(
        server_cert_path=str(cert), server_key_path=str(key), server_key_password=PASSWORD
    )
    assert TlsContexts(given).server is not None
    assert PASSWORD not in repr(given)
    with pytest.raises(SettingsError, match=r"cannot be used .* is the password right") as refused:
        TlsContexts(replace(given, server_key_password="wrong"))
    assert "wrong" not in str(refused.value)
    with pytest.raises(SettingsError, match=r"is encrypted: give tls.server.keyPassword"):
        TlsContexts(replace(given, server_key_password=""))


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("tls.server.certPath", "server_cert_path"),
        ("tls.server.trustCertPath", "server_trust_cert_path"),
        ("tls.client.certPath", "client_cert_path"),
        ("tls.client.trustCertPath", "client_trust_cert_path"),
    ],
)
def test_a_file_that_is_missing_or_is_something_else_is_refused_by_its_key(
    tmp_path: Path, key: str, field: str
) -> None:
    cert = str(certificates().server[0])
    given = TlsSettings(
        server_cert_path=cert,
        server_key_path=str(certificates().server[1]),
        server_need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=cert,
        client_cert_path=str(certificates().client[0]),
        client_key_path=str(certificates().client[1]),
        client_trust_cert_path=cert,
        enable="true",
    )
    assert TlsContexts(given).client is not None
    text = tmp_path / "something"
    with pytest.raises(SettingsError, match=f"{key}.* cannot be used .No such file"):
        TlsContexts(replace(given, **{field: str(text)}))
    text.write_text("something")
    with pytest.raises(SettingsError, match=f"{key}.* cannot be used"):
        TlsContexts(replace(given, **{field: str(text)}))


def test_what_has_no_effect_is_said(caplog: pytest.LogCaptureFixture) -> None:
    cert = str(certificates().server[0])
    TlsContexts(TlsSettings(server_trust_cert_path=cert, client_cert_path=cert))
    assert caplog.messages == [
        f"{key} has no effect beside the other settings of TLS"
        for key in ("tls.server.trustCertPath", "tls.client.certPath")
    ]
