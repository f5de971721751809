"""Apache RocketMQ's own name server and broker, started from its released jars for one test run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_OPEN = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
]

QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
"""JVMs of tests live shortly: what they save at their start they never win back by running."""


def free_port() -> int:
    """A port that was free a moment ago, as were port - 2 and port + 1, which brokers take too.

    It is none that systems give to outgoing connections: those come and go meanwhile.
    """
    for port in random.SystemRandom().sample(range(12_000, 32_000), 100):
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for wanted in (port, port - 2, port + 1):
                probes.enter_context(socket.socket()).bind(("", wanted))
            return port
    raise AssertionError("no three free ports side by side")


class ApacheRole:
    """One JVM of Apache RocketMQ, up once it has said so."""

    def __init__(
        self,
        jars: Path,
        main: str,
        heap_mb: int,
        home: Path,
        settings: dict[str, object],
        java: Sequence[str] = (),
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "settings.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", *QUICK, *_OPEN, *java, f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m"]
        command += [f"-Duser.home={home}", "-cp", f"{jars}/*", main, "-c", str(conf)]
        self._child = subprocess.Popen(
            command,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._said: list[str] = []
        self._is_up = False
        self._has_started = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self._has_started.wait(180)
            assert self._is_up, f"{main} did not start:\n" + "".join(self._said[-20:])
        except BaseException:
            self.stop()
            raise

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._said.append(line)
            del self._said[:-200]
            if "boot success" in line:
                self._is_up = True
                self._has_started.set()
        self._has_started.set()  # it has ended

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._child.send_signal(number)

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
    """A name server unless another one is given, and a broker at it unless `broker` is False.

    `java` are arguments for their JVMs, such as `-Dtls.server.mode=enforcing`.
    The broker says that it is up when it has asked for its registration, had or not.
    """

    def __init__(
        self,
        jars: Path,
        home: Path,
        *,
        broker: bool = True,
        namesrv: str | None = None,
        java: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self._roles: list[ApacheRole] = []
        self.namesrv = namesrv or f"127.0.0.1:{free_port()}"
        try:
            if namesrv is None:
                start = "org.apache.rocketmq.namesrv.NamesrvStartup"
                given: dict[str, object] = {"listenPort": self.namesrv.rpartition(":")[2]}
                self._roles.append(ApacheRole(jars, start, 128, home / "namesrv", given, java))
            if broker:
                given = self._given(home / "store", settings)
                self.broker = f"{given['brokerIP1']}:{given['listenPort']}"
                start = "org.apache.rocketmq.broker.BrokerStartup"
                self._roles.append(ApacheRole(jars, start, 512, home / "broker", given, java))
                with Admin(namesrv=self.namesrv) as admin:
                    until(lambda: self._is_registered(admin), 90)
        except BaseException:  # the name server would go on without anybody who knows it
            self.stop()
            raise

    def _is_registered(self, admin: Admin) -> bool:
        with contextlib.suppress(CometError):
            known = admin.clusters().broker_addr_table.values()
            return any(self.broker in each.broker_addrs.values() for each in known)
        return False

    def _given(self, store: Path, settings: dict[str, object]) -> dict[str, object]:
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "apache-a",
            "brokerId": 0,
            "namesrvAddr": self.namesrv,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": free_port(),
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "diskMaxUsedSpaceRatio": 95,
            "waitTimeMillsInSendQueue": 10_000,
            "osPageCacheBusyTimeOutMills": 10_000,
            "messageDelayLevel": "1s 1s 1s 1s 2s 2s",
            **settings,
        }

    @contextlib.contextmanager
    def broker_suspended(self) -> Iterator[None]:
        """Let the broker do nothing meanwhile (SIGSTOP)."""
        self._roles[-1].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._roles[-1].signal(signal.SIGCONT)

    def stop_broker(self) -> None:
        """Stop the broker alone."""
        self._roles.pop().stop()

    def stop(self) -> None:
        """Stop what runs, the broker first."""
        for role in reversed(self._roles):
            role.stop()
