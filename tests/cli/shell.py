"""The command as a user's shell runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = str(Path(sys.executable).with_name("cometmq"))
BOUND_S = 30


def cometmq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, **environment},
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line an unsuccessful command says."""
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("cometmq: ")
    return lines[0].removeprefix("cometmq: ")


class RunningServer:
    """A command that serves, and what its ready file says."""

    def __init__(self, process: subprocess.Popen[str], ready: Path) -> None:
        self.process, self.ready = process, ready
        self.facts: dict[str, Any] = {}

    def wait_ready(self) -> None:
        deadline = time.monotonic() + BOUND_S
        while not self.ready.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.facts = json.loads(self.ready.read_text())

    def end(self, signal_number: int) -> tuple[int, str]:
        """Send a signal; return exit code and stderr."""
        self.process.send_signal(signal_number)
        _, stderr = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, stderr


@contextmanager
def serving(tmp_path: Path, *arguments: str, **environment: str) -> Iterator[RunningServer]:
    """Start a command that serves and wait until it is ready."""
    ready = tmp_path / f"ready-{time.monotonic_ns()}.json"
    process = subprocess.Popen(
        [COMMAND, *arguments, "--ready-file", str(ready)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    server = RunningServer(process, ready)
    try:
        server.wait_ready()
        yield server
    finally:
        process.kill()
        process.communicate()
