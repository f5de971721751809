"""A name server and a broker in processes of their own, that can be killed and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAIN = (sys.executable, "-m", "cometmq.cli.main")
READY_S = 30.0
SETTINGS = {
    "queueLockExpireMs": "3000",
    "messageDelayLevel": "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
    "mappedFileSizeCommitLog": "16777216",
}


class Served:
    """One name server and one broker; the broker keeps its port over restarts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self.namesrv = self._start("namesrv", "--port", "0")["namesrv"]
        self.broker = ""
        self.start_broker()

    def start_broker(self) -> None:
        """Start the broker (again)."""
        port = self.broker.rpartition(":")[2] or "0"
        ready = self._start(
            "broker",
            "--port",
            port,
            "--namesrv",
            self.namesrv,
            "--store",
            str(self._root / "store"),
            *(word for pair in SETTINGS.items() for word in ("--set", "=".join(pair))),
        )
        self.broker = ready["broker"]

    def kill_broker(self) -> None:
        """Kill the broker without warning (SIGKILL)."""
        self._end("broker", signal.SIGKILL)

    def stop(self) -> None:
        """Stop both."""
        for name in list(self._processes):
            self._end(name, signal.SIGTERM)

    def _start(self, role: str, *arguments: str) -> dict[str, str]:
        self._starts += 1
        ready = self._root / f"ready-{self._starts}.json"
        command = (*MAIN, role, "--ready-file", str(ready), "--until-stdin-closes", *arguments)
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self._processes[role] = process
        until(lambda: ready.exists() or process.poll() is not None, READY_S)
        assert process.poll() is None, f"{role} ended with {process.poll()}"
        found: dict[str, str] = json.loads(ready.read_text())
        return found

    def _end(self, role: str, how: signal.Signals) -> None:
        process = self._processes.pop(role)
        process.send_signal(how)
        process.wait(READY_S)
        if process.stdin:
            process.stdin.close()


def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait until a condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
        time.sleep(0.01)
