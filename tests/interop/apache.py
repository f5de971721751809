"""Apache RocketMQ's own name server and broker, started from its released jars for one test run."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_OPEN = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
]


def free_port() -> int:
    """A port that was free a moment ago, as were port - 2 and port + 1, which brokers take too."""
    for _ in range(100):
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            first = probes.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            for neighbour in (port - 2, port + 1):
                probes.enter_context(socket.socket()).bind(("", neighbour))
            return port
    raise AssertionError("no three free ports side by side")


class ApacheRole:
    """One JVM of Apache RocketMQ, up once it has said so."""

    def __init__(
        self, jars: Path, main: str, heap_mb: int, home: Path, settings: dict[str, object]
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "settings.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", *_OPEN, f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m"]
        command += [f"-Duser.home={home}", "-cp", f"{jars}/*", main, "-c", str(conf)]
        self._child = subprocess.Popen(
            command,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._said: list[str] = []
        self._up = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        if not self._up.wait(180):
            self.stop()
            raise AssertionError(f"{main} did not start:\n" + "".join(self._said[-20:]))

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._said.append(line)
            del self._said[:-200]
            if "boot success" in line:
                self._up.set()

    def stop(self) -> None:
        """End it cleanly, or at once after ten seconds."""
        self._child.terminate()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join(10)
        assert self._child.stdout is not None
        self._child.stdout.close()


class ApacheCluster:
    """A name server unless another one is given, and a broker at it unless `broker` is False."""

    def __init__(
        self,
        jars: Path,
        home: Path,
        *,
        broker: bool = True,
        namesrv: str | None = None,
        **settings: object,
    ) -> None:
        self._roles: list[ApacheRole] = []
        self.namesrv = namesrv or f"127.0.0.1:{free_port()}"
        if namesrv is None:
            start = "org.apache.rocketmq.namesrv.NamesrvStartup"
            given: dict[str, object] = {"listenPort": self.namesrv.rpartition(":")[2]}
            self._roles.append(ApacheRole(jars, start, 128, home / "namesrv", given))
        if broker:
            store = home / "store"
            listen = free_port()
            self.broker = f"127.0.0.1:{listen}"
            start = "org.apache.rocketmq.broker.BrokerStartup"
            given = {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "apache-a",
                "brokerId": 0,
                "namesrvAddr": self.namesrv,
                "brokerIP1": "127.0.0.1",
                "listenPort": listen,
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                "diskMaxUsedSpaceRatio": 95,
                "waitTimeMillsInSendQueue": 10_000,
                "osPageCacheBusyTimeOutMills": 10_000,
                "messageDelayLevel": "1s 1s 1s 1s 2s 2s",
                **settings,
            }
            self._roles.append(ApacheRole(jars, start, 512, home / "broker", given))

    def stop(self) -> None:
        """Stop what runs, the broker first."""
        for role in reversed(self._roles):
            role.stop()
