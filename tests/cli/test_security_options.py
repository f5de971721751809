"""Keys come from the environment alone, TLS from options; every command about tables takes both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from cometmq.cli.pipeline_commands import pipeline
from cometmq.cli.security_options import security_options
from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("COMETMQ_ACCESS_KEY", "COMETMQ_SECRET_KEY", "COMETMQ_SECURITY_TOKEN")


@click.command()
@security_options
def shown(options: Mapping[str, str]) -> None:
    """Show the options."""
    click.echo(json.dumps(options))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str, keys: tuple[str, ...] = ()) -> dict[str, str]:
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, key in zip(NAMES, keys, strict=False):
            monkeypatch.setenv(name, key)
        shown.main(list(arguments), standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    return run


def test_nothing_given_is_no_option(run) -> None:
    assert run() == {}


def test_keys_and_tls_become_options_of_the_source(run) -> None:
    files = ("--tls-ca-file=ca", "--tls-cert-file=cert", "--tls-key-file=key")
    assert run("--tls", *files, "--tls-any-hostname", keys=("ak", "sk", "token")) == {
        "accessKey": "ak",
        "secretKey": "sk",
        "securityToken": "token",
        "tls": "true",
        "tlsCaFile": "ca",
        "tlsCertFile": "cert",
        "tlsKeyFile": "key",
        "tlsCheckHostname": "false",
    }


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (("ak",), "COMETMQ_ACCESS_KEY is set without COMETMQ_SECRET_KEY"),
        (("", "sk"), "COMETMQ_SECRET_KEY is set without COMETMQ_ACCESS_KEY"),
    ],
)
def test_half_a_pair_is_refused_by_the_names_of_the_variables(run, keys, sentence) -> None:
    with pytest.raises(SettingsError, match=sentence):
        run(keys=keys)


def test_every_command_about_tables_takes_them() -> None:
    for name, command in pipeline.commands.items():
        names = {parameter.name for parameter in command.params}
        assert {"tls", "tls_ca_file"} <= names, name
        assert not {"access_key", "secret_key"} & names, name


def test_an_archive_asks_no_broker_and_so_takes_no_tls() -> None:
    with pytest.raises(click.UsageError, match="--archive asks no broker: leave out --tls"):
        pipeline.main(["order", "--archive", "somewhere", "--tls"], standalone_mode=False)
