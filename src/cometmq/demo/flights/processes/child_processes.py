"""Child processes of the job, the broker among them: start, check, kill, stop.

Owns the processes and their logs; does not know what they do. Invariant: once `stop` has returned,
the child is gone. Each child has its own session, so Ctrl-C reaches only the job, which then stops
them in order. Each child's stdin is a pipe that closes when the job dies.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_POLL_S = 0.02
_LOG_TAIL_BYTES = 2000


class ChildFailed(CometError):
    """A process of the job ended unexpectedly; the message quotes the last line of its log."""


class ChildProcess:
    """One process of this interpreter: `python -m module argument...`."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def require_no_failure(self) -> None:
        """Raise ChildFailed when the process has ended with an error."""
        code = self._process.poll()
        if code:
            raise ChildFailed(f"{self.name} ended with {code}: {self.last_log_line()}")

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self._process.kill()
        self._process.wait()
        self._close()

    def send_sigterm(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = 15.0) -> None:
        """Wait for the process to end; kill it after `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def last_log_line(self) -> str:
        """The last line of the process's log."""
        data = self._log.read_bytes()[-_LOG_TAIL_BYTES:]
        lines = data.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"nothing is in {self._log}"


class BrokerProcess:
    """Name server and broker in one process, over one store, on the same ports after a restart."""

    def __init__(self, directory: Path, settings: Sequence[str]) -> None:
        self._directory = directory
        self._settings = tuple(settings)
        self._ready = directory / "ready.json"
        self._ports = ("0", "0")
        self._child: ChildProcess | None = None
        self.namesrv = ""
        """host:port of the name server, from the first start on."""

    def start(self, timeout_s: float = 30.0) -> None:
        """Start and wait until both accept; raises ChildFailed when they do not."""
        self._ready.unlink(missing_ok=True)
        namesrv_port, broker_port = self._ports
        self._child = ChildProcess("the broker", "cometmq.cli.main", [
            "standalone",
            "--until-stdin-closes",
            "--store", str(self._directory / "store"),
            "--namesrv-port", namesrv_port,
            "--broker-port", broker_port,
            "--ready-file", str(self._ready),
            *(word for setting in self._settings for word in ("--set", setting)),
        ], self._directory / "broker.log")  # fmt: skip
        addresses = self._wait(self._child, time.monotonic() + timeout_s)
        self.namesrv = addresses["namesrv"]
        self._ports = (_port(addresses["namesrv"]), _port(addresses["broker"]))

    def kill(self) -> None:
        """kill -9."""
        if self._child:
            self._child.kill()

    def stop(self) -> None:
        """Stop cleanly."""
        if self._child:
            self._child.send_sigterm()
            self._child.stop()

    def require_no_failure(self) -> None:
        """Raise ChildFailed when the broker has gone."""
        if self._child and not self._child.is_running:
            raise ChildFailed(f"the broker has ended: {self._child.last_log_line()}")

    def _wait(self, child: ChildProcess, deadline_s: float) -> dict[str, str]:
        while not self._ready.is_file():
            if not child.is_running:
                raise ChildFailed(f"the broker did not start: {child.last_log_line()}")
            if time.monotonic() > deadline_s:
                child.kill()
                raise ChildFailed(f"the broker was not ready in time: {child.last_log_line()}")
            time.sleep(_POLL_S)
        addresses: dict[str, str] = json.loads(self._ready.read_text())
        return addresses


def _port(address: str) -> str:
    return address.rpartition(":")[2]
