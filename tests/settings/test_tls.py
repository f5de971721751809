"""TLS by RocketMQ's names: defaults, and combinations that would not do what they say."""

from __future__ import annotations

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.load import env_name_of, from_environment, from_text, load
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.tls import TlsSettings
from cometmq.settings.update import update

KINDS = (BrokerSettings, TlsSettings)

APACHE = """
tls.test.mode.enable=false
tls.server.need.client.auth=none
tls.server.keyPath=/opt/certs/server.key
tls.server.keyPassword=123456
tls.server.certPath=/opt/certs/server.pem
tls.server.authClient=false
tls.server.trustCertPath=/opt/certs/ca.pem
tls.client.authServer=false
"""


def loaded(text: str) -> TlsSettings:
    return load(KINDS, from_text(text, "broker.conf")).of(TlsSettings)


def test_a_file_of_apaches_documentation_is_taken() -> None:
    found = loaded(APACHE)
    assert (found.serves, found.connects) == (True, False)
    assert found.server_key_password == "123456"
    assert "123456" not in repr(found)
    assert found.without_effect == ["tls.server.trustCertPath"]


def test_nothing_given_is_no_tls() -> None:
    assert (TlsSettings().serves, TlsSettings().connects, TlsSettings().without_effect) == (
        False,
        False,
        [],
    )


@pytest.mark.parametrize(
    ("text", "connects"),
    [
        ("tls.server.mode=enforcing\ntls.server.certPath=c", True),
        ("tls.server.mode=enforcing\ntls.server.certPath=c\ntls.enable=false", False),
        ("tls.enable=true", True),
        ("useTLS=true", True),
        ("useTLS=false\ntls.enable=true", False),
    ],
)
def test_a_role_connects_with_tls_where_rocketmqs_would(text: str, connects: bool) -> None:
    assert loaded(text).connects == connects


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tls.server.mode=enforcing", "where tls.server.certPath is empty"),
        ("tls.server.mode=strict", "disabled or permissive or enforcing"),
        ("tls.server.keyPath=k", "tls.server.keyPath is 'k'; it must be empty where"),
        (
            "tls.server.need.client.auth=require\ntls.server.trustCertPath=c",
            "tls.server.need.client.auth is 'require'; it must be none where "
            "tls.server.authClient is false",
        ),
        (
            "tls.server.need.client.auth=optional\ntls.server.authClient=true",
            "a file where tls.server.need.client.auth asks for certificates",
        ),
        ("tls.client.keyPath=k", "empty where tls.client.certPath is"),
        ("tls.test.mode.enable=true", "must be false: make certificates"),
        ("useTLS=maybe", "useTLS is 'maybe'"),
        ("tls.server.certpath=c", "unknown setting tls.server.certpath; did you mean"),
    ],
)
def test_what_would_check_less_than_it_says_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        loaded(text)


def test_variables_have_underscores_for_points() -> None:
    assert env_name_of("tls.server.need.client.auth") == "COMETMQ_TLS_SERVER_NEED_CLIENT_AUTH"
    given = {"COMETMQ_TLS_SERVER_CERT_PATH": "c", "COMETMQ_TLS_SERVER_MODE": "enforcing"}
    found = load(KINDS, from_environment(given, KINDS)).of(TlsSettings)
    assert (found.server_mode, found.server_cert_path) == ("enforcing", "c")


@pytest.mark.parametrize("key", ["tls.server.mode", "useTLS", "tls.server.keyPassword"])
def test_nobody_changes_them_from_outside(key: str) -> None:
    kinds = (NamesrvSettings(), NetSettings())
    with pytest.raises(SettingsError, match=f"{key} is read at the start only"):
        update(kinds, f"{key}=x")
