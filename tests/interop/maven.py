"""Apache RocketMQ's released jars, fetched by Maven into a cache of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cometmq" / "interop"
POM = Path(__file__).with_name("pom.xml")


def fetched(version: str) -> Path:
    """The folder with the jars of a release; fetched once per machine."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            pytest.fail(f"interop tests need {tool} on PATH")
    jars = CACHE / version
    if not (jars / ".complete").exists():
        jars.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(POM), f"-Drocketmq.version={version}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(command, check=True, timeout=600)
        (jars / ".complete").touch()
    return jars
