"""The command itself: help, codes, and what it does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.shell import cometmq, sentence
from cometmq import native
from cometmq.cli.main import cli, run


def test_help_names_every_command_and_loads_none_of_them() -> None:
    script = (
        "import sys\n"
        "from cometmq.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'asyncio', 'rich', 'pyspark', 'cometmq.cli.serve_commands'}\n"
        "heavy |= {'cometmq.cli.topic_commands'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    for name in ("standalone", "namesrv", "broker", "topic", "demo"):
        assert f"  {name} " in done.stdout


def leaves(command: click.Command, path: str) -> list[str]:
    if isinstance(command, click.Group):
        return [
            leaf
            for name, each in command.commands.items()
            for leaf in leaves(each, f"{path} {name}")
        ]
    return [path]


@pytest.mark.parametrize(
    "name",
    ["group", "topic", "message", "cluster", "brokers", "nameservers", "producers", "offsets"],
)
def test_the_page_names_every_daily_command_and_each_takes_keys_and_tls(name: str) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    page = (Path(__file__).parents[2] / "docs" / "operate" / "cli.md").read_text("utf-8")
    missing = [path for path in leaves(found, f"cometmq {name}") if f"`{path}" not in page]
    assert missing == []
    for path in leaves(found, name):
        one: click.Command = found
        for word in path.split()[1:]:
            assert isinstance(one, click.Group)
            one = one.commands[word]
        assert {"namesrv", "tls"} <= {param.name for param in one.params}, path


@pytest.mark.parametrize("name", ["standalone", "namesrv", "broker", "topic", "group"])
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"cometmq {name}" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    number, loops = capsys.readouterr().out.splitlines()
    assert "0.1" in number
    assert loops == f"hot loops in {native.form()}"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["namesrv", "--nonsense"], ["namesrv", "-p", "x"], ["topic", "x"]]
)
def test_a_wrong_call_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topc", "list"], "there is no command 'topc'; did you mean topic?"),
        (["topic", "creat", "x"], "there is no command 'creat'; did you mean create?"),
        (["brokers", "config", "sett"], "there is no command 'sett'; did you mean set?"),
        (["-n", "x:1", "topic", "list"], "follow it: cometmq COMMAND -n ..."),
        (["topic", "--namesrv", "x:1", "list"], "follow it: cometmq topic COMMAND --namesrv ..."),
    ],
)
def test_a_wrong_call_says_what_may_be_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


def test_no_name_server_is_a_one_sentence_error() -> None:
    said = sentence(cometmq("topic", "list", "-n", "127.0.0.1:1"))
    assert "127.0.0.1:1" in said
