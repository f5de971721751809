"""Options of keys and TLS: what they become, what is wrong with them, and no secret in a text."""

from __future__ import annotations

import pickle
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import AccessDenied, BrokerError, SettingsError
from cometmq.spark import connection_security
from cometmq.spark.sink import sink_options
from cometmq.spark.source import source_options
from spark.guarded import KEYS
from spark.scripted import error_of

if TYPE_CHECKING:
    from cometmq.spark.source.source_options import SourceOptions

PEM = str(Path(__file__).parents[1] / "client" / "session" / "localhost.pem")
ENCRYPTED_KEY = Path(__file__).with_name("encrypted_key.pem")
REDACTED = re.compile("(?i)secret|password|token|access[.]?key")
"""Spark's default for `spark.redaction.regex`."""


def parsed(**more: str) -> SourceOptions:
    return source_options.parse({"namesrv": "127.0.0.1:1", "topic": "T", **more})


def test_without_these_options_nothing_is_signed_or_encrypted() -> None:
    security = parsed().security
    assert (security.credentials, security.tls) == (None, None)
    assert set(security.client_settings().values()) == {None}


def test_source_and_sink_make_the_same_of_them_and_pickle_it() -> None:
    given = {**KEYS, "securityToken": "sts", "tls": "TRUE", "tlsCaFile": PEM, "tlsCertFile": PEM}
    of_source = parsed(**given)
    of_sink = sink_options.parse({"namesrv": "127.0.0.1:1", **given})
    assert of_source.security == of_sink.security
    assert pickle.loads(pickle.dumps(of_source)) == of_source
    assert len({of_source, parsed(**given), parsed()}) == 2, "worker processes keep clients by it"
    settings = of_sink.security.client_settings()
    assert [settings["access_key"], settings["secret_key"]] == list(KEYS.values())
    assert settings["security_token"] == "sts"
    context = settings["tls"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [one["notAfter"] for one in context.get_ca_certs()] == ["Oct 28 17:23:24 2126 GMT"]


def test_a_server_may_be_trusted_by_another_name_and_never_without_authority() -> None:
    context = parsed(tls="true", tlsCheckHostname="false").security.client_settings()["tls"]
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"accessKey": "a"}, "the option accessKey is given without secretKey"),
        ({"secretKey": "s3cr3t"}, "the option secretKey is given without accessKey"),
        ({"securityToken": "s3cr3t"}, "securityToken needs accessKey and secretKey beside it"),
        ({"tls": "yes"}, "the option tls is 'yes': write true or false"),
        ({"tlsCaFile": PEM}, "the option tlsCaFile has no effect without tls=true"),
        ({"tlsCheckHostname": "true"}, "tlsCheckHostname has no effect without tls=true"),
        ({"tls": "true", "tlsKeyFile": PEM}, "the option tlsKeyFile needs tlsCertFile"),
        (
            {"tls": "true", "tlsCaFile": "/no/such/ca.pem"},
            r"tlsCaFile: /no/such/ca.pem cannot be used on \S+ \(No such file or directory\); "
            "driver and executors need it at the same path",
        ),
        ({"tls": "true", "tlsCaFile": __file__}, "tlsCaFile: .* cannot be used on"),
        ({"tls": "true", "tlsCertFile": "/no/cert"}, "tlsCertFile: /no/cert cannot be used on"),
        (
            {"tls": "true", "tlsCertFile": PEM, "tlsKeyFile": str(ENCRYPTED_KEY)},
            "the key in .*encrypted_key.pem has a passphrase",
        ),
        ({"secretKeys": "s3cr3t"}, "no option secretkeys: did you mean secretKey"),
        ({"kafka.security.protocol": "SSL"}, "Kafka's word, write tls=true for TLS"),
        ({"kafka.sasl.jaas.config": "s3cr3t"}, "Kafka's word, write accessKey and secretKey"),
        ({"kafka.ssl.truststore.location": "t"}, "Kafka's word, write tlsCaFile"),
    ],
)
def test_what_is_wrong_fails_in_load_with_one_sentence(more: dict[str, str], sentence: str) -> None:
    said = error_of(lambda: parsed(**more))
    assert re.search(sentence, said), said
    assert "\n" not in said
    assert "s3cr3t" not in said


def test_a_file_that_is_on_the_driver_alone_is_named_by_the_executor(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(Path(PEM).read_bytes())
    security = parsed(tls="true", tlsCaFile=str(authority)).security
    authority.unlink()
    with pytest.raises(SettingsError, match=f"tlsCaFile: {authority} cannot be used on"):
        security.channel("127.0.0.1:1", 1.0)


def test_secrets_are_in_no_text_and_have_names_that_spark_redacts() -> None:
    given = {**KEYS, "securityToken": "sts-that-nobody-may-see"}
    for options in (parsed(**given), sink_options.parse({"namesrv": "a:1", **given})):
        assert "nobody-may-see" not in repr(options)
        assert "nobody-may-see" not in f"{options!s} {options.security.credentials}"
    assert all(REDACTED.search(name.lower()) for name in given)


def test_a_refusal_says_what_to_look_at_and_other_errors_stay() -> None:
    refusal = connection_security.explained(BrokerError(16, "no such user.", "a:1"))
    assert isinstance(refusal, AccessDenied)
    assert not refusal.retriable
    assert str(refusal).startswith("a:1 answered code 16: no such user; where brokers ask for keys")
    other = BrokerError(1, "no such user", "a:1")
    assert connection_security.explained(other) is other
