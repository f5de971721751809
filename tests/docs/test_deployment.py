"""The files of deploy/: each names commands, options and settings that exist, and they work."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cometmq.cli.main import cli
from cometmq.cli.serve_commands import _BROKER_KINDS, _NAMESRV_KINDS
from cometmq.settings.load import RawSetting, from_text, load

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ("cometmq-broker.service", "cometmq-namesrv.service")


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=True, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / name, encoding="utf-8")
    return found


def compose() -> dict[str, dict[str, object]]:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services: dict[str, dict[str, object]] = found["services"]
    return services


def dockerfile() -> list[tuple[str, str]]:
    """Each instruction and its words, lines that go on joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(first, rest) for first, _, rest in (line.partition(" ") for line in lines)]


def check_command(words: list[str]) -> None:
    """The command takes these options, and its role these settings."""
    asked = CliRunner().invoke(cli, [*words, "--help"])
    assert asked.exit_code == 0, asked.output
    kinds = _NAMESRV_KINDS if words[0] == "namesrv" else _BROKER_KINDS
    given = [word for before, word in pairwise(words) if before == "--set"]
    pairs = [each.partition("=") for each in given]
    load(kinds, [RawSetting(key, value, "deploy") for key, _, value in pairs])


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_exists_and_is_watched(name: str) -> None:
    service = unit(name)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == "/opt/cometmq/bin/cometmq"
    check_command(words[1:])
    assert (service["Type"], service["WatchdogSec"]) == ("notify", "30")
    assert int(service["LimitNOFILE"]) > 16_384 + 1_024
    conf = words[words.index("-c") + 1]
    kinds = _NAMESRV_KINDS if "namesrv" in name else _BROKER_KINDS
    text = (DEPLOY / Path(conf).name).read_text(encoding="utf-8")
    load(kinds, from_text(text, conf))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_no_fault_in_a_unit(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text.replace("/opt/cometmq/bin/cometmq", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert name not in done.stderr, done.stderr


def test_the_services_of_the_compose_file_run_commands_that_exist() -> None:
    services = compose()
    assert set(services) == {"namesrv", "broker"}
    exposed = set(dict(dockerfile())["EXPOSE"].split())
    for name, service in services.items():
        words = service["command"]
        assert isinstance(words, list)
        assert words[0] == name
        check_command([str(word) for word in words])
        ports = service["ports"]
        assert isinstance(ports, list)
        assert all(str(port).startswith("127.0.0.1:") for port in ports)
        assert {str(port).rpartition(":")[2] for port in ports} <= exposed


def test_the_image_is_made_of_the_extras_that_there_are() -> None:
    lines = dockerfile()
    assert lines[0] == ("FROM", "python:3.12-slim")
    known = {"FROM", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK"}
    assert {first for first, _ in lines} <= known | {"ENTRYPOINT", "CMD"}
    (install,) = re.findall(r"\$wheel\[([\w,]+)\]", dict(lines)["RUN"])
    project = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    for extra in install.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    asked = CliRunner().invoke(cli, ["health", "--help"])
    assert asked.exit_code == 0
    assert '"cometmq", "health"' in dict(lines)["HEALTHCHECK"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_steps_of_the_image_make_a_broker_that_is_ready(tmp_path: Path) -> None:
    wheels, home = tmp_path / "wheels", tmp_path / "opt"
    wheels.mkdir()
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels)]
    subprocess.run([*build, str(DEPLOY.parent)], check=True, timeout=300)
    steps = dict(dockerfile())["RUN"].replace("/tmp/wheels", str(wheels))
    steps = steps.replace("/opt/cometmq", str(home)).replace("python -m", f"{sys.executable} -m")
    steps = re.sub(r"useradd [^;]*", "true", steps)
    subprocess.run(["sh", "-c", steps], check=True, timeout=300, env={"PATH": os.environ["PATH"]})
    command, ready = str(home / "bin" / "cometmq"), tmp_path / "ready.json"
    words = compose()["broker"]["command"]
    assert isinstance(words, list)
    moved = {"namesrv:9876": "127.0.0.1:1", "/var/lib/cometmq/store": str(tmp_path / "store")}
    started = [moved.get(str(word), str(word)) for word in words]
    more = ["-p0", "--set", "metricsPromExporterPort=0", "--ready-file", str(ready)]
    with subprocess.Popen([command, *started, *more], env={}) as broker:
        try:
            while not ready.exists():
                assert broker.poll() is None
                time.sleep(0.05)
            url = json.loads(ready.read_text())["monitoring"].replace("0.0.0.0", "127.0.0.1")
            asked = [command, "health", "--url", url, "--json"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
            assert "no name server" in json.loads(done.stdout)["problems"][0]
            assert subprocess.run([*asked, "--live"], check=False, timeout=60).returncode == 0
        finally:
            broker.terminate()
