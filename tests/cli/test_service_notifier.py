"""systemd hears over its real datagram socket what a real process does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from broker.harness import run
from cli.shell import BOUND_S, COMMAND
from cometmq.cli.service_notifier import ServiceNotifier

if TYPE_CHECKING:
    from pathlib import Path


def listener(place: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(place))
    made.settimeout(BOUND_S)
    return made


def test_a_service_says_when_it_is_ready_that_it_lives_and_that_it_stops(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    with listener(tmp_path / "notify") as manager:
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        command = [COMMAND, "namesrv", "-p0", "--ready-file", str(ready)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            assert manager.recv(99) == b"READY=1"
            assert json.loads(ready.read_text())["pid"] == process.pid
            assert [manager.recv(99) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            process.send_signal(signal.SIGTERM)
            heard = b"WATCHDOG=1"
            while heard == b"WATCHDOG=1":
                heard = manager.recv(99)
            assert heard == b"STOPPING=1"
            assert process.communicate(timeout=BOUND_S)[1] == b""
        finally:
            process.kill()
            process.communicate()


def test_without_a_manager_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        for address in ("", str(tmp_path / "gone"), "@nobody-listens-here"):
            notifier = ServiceNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10"})
            notifier.ready()
            await notifier.stopping()

    run(scenario())


def test_another_processs_watchdog_is_not_fed(tmp_path: Path) -> None:
    async def scenario() -> None:
        with listener(tmp_path / "notify") as manager:
            environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "10"}
            notifier = ServiceNotifier({**environment, "WATCHDOG_PID": "1"})
            notifier.ready()
            await notifier.stopping()
            assert [manager.recv(99), manager.recv(99)] == [b"READY=1", b"STOPPING=1"]

    run(scenario())
