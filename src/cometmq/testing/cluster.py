"""A real name server and a real broker on free ports, for tests.

`LocalCluster` runs them in a child process, so they can be killed. `InProcessCluster` runs them on
the test's own loop: it is faster, and tests can inspect it.
Invariant: after the `with`, and when the test's process dies, nothing is left running.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cometmq.broker.app import Broker
from cometmq.errors import CometError
from cometmq.namesrv.app import NameServer
from cometmq.runtime.system_clock_and_files import ThreadWorker
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.keys import key_of
from cometmq.settings.load import RawSetting, load
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, Worker

_OLD_FIELD_NAMES = {
    "max_message_size": "max_message_bytes",
    "max_transfer_count_on_message_in_memory": "transfer_count_in_memory_max",
    "max_transfer_bytes_on_message_in_memory": "transfer_bytes_in_memory_max",
    "parked_pulls_max": "held_pulls_max",
}
"""Old names of fields that programs may still give, and the present ones."""

_KINDS = (BrokerSettings, StoreSettings, NetSettings, AccessSettings)
_POLL_S = 0.002
"""Between looks for the ready file; a look takes some 10 us."""


class ClusterError(CometError):
    """The child process ended or did not start; the message ends with its last line on stderr."""


class ServerProcess:
    """One `cometmq` command that serves, in a child process of its own.

    It ends when it is stopped or killed, and when the process that started it has ended.
    """

    def __init__(self, arguments: list[str], *, timeout_s: float = 30.0) -> None:
        """Start it and wait until it accepts; raises ClusterError after `timeout_s` seconds."""
        self._place = tempfile.TemporaryDirectory(prefix="cometmq-")
        ready = Path(self._place.name) / "ready.json"
        self._said = Path(self._place.name) / "stderr"
        command = [sys.executable, "-m", "cometmq.cli.main", *arguments]
        command += ["--ready-file", str(ready), "--until-stdin-closes"]
        with self._said.open("wb") as said:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        self.facts: dict[str, Any] = self._wait(ready, timeout_s)
        """The content of its ready file."""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether the child is still running."""
        return self._child.poll() is None

    @property
    def stderr(self) -> str:
        """What the child has logged so far."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it at once, as a crash does (SIGKILL)."""
        self._child.kill()
        self._end()

    def stop(self, timeout_s: float = 20.0) -> int:
        """End it cleanly (SIGTERM) and return its exit code; killed after `timeout_s` seconds."""
        if self.is_running:
            self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
        return self._end()

    def _end(self) -> int:
        code = self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._place.cleanup()
        return code

    def _wait(self, ready: Path, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while not ready.exists():
            if not self.is_running or time.monotonic() > deadline:
                problem = "did not start" if self.is_running else "ended"
                lines = self.stderr.strip().splitlines() or ["nothing on stderr"]
                self.kill()
                raise ClusterError(f"cometmq {problem}: {lines[-1]}")
            time.sleep(_POLL_S)
        facts = json.loads(ready.read_text(encoding="utf-8"))
        assert isinstance(facts, dict)
        return facts


class LocalCluster:
    """A name server and a broker in a child process, or in two (`apart`).

        with LocalCluster(tmp_path, flush_disk_type="SYNC_FLUSH") as cluster:
            producer = Producer("group", namesrv=cluster.namesrv)

    Settings are given by field name or by key, as `flush_disk_type` or `flushDiskType`.
    """

    def __init__(
        self,
        store: Path | str | None = None,
        *,
        apart: bool = False,
        timeout_s: float = 30.0,
        **settings: object,
    ) -> None:
        """Take a store directory (default: one that goes with the cluster) and settings."""
        self._own: tempfile.TemporaryDirectory[str] | None = None
        if store is None:
            self._own = tempfile.TemporaryDirectory(prefix="cometmq-")
            store = self._own.name
        self.store = Path(store)
        self._apart = apart
        self._timeout_s = timeout_s
        self._sets = [f"--set={key}={_text(value)}" for key, value in _keyed(settings).items()]
        self._names: ServerProcess | None = None
        self._broker: ServerProcess | None = None
        self.namesrv = self.broker = "127.0.0.1:0"
        """Addresses, "host:port"; they stay the same after `restart`."""

    def start(self) -> None:
        """Start what does not run, on the same ports as before; raises ClusterError."""
        if self._apart and self._names is None:
            port, kept = _port(self.namesrv), self.store / "config" / "kvConfig.json"
            self._names = ServerProcess(
                ["namesrv", f"-p{port}", "--set", f"kvConfigPath={kept}"], timeout_s=self._timeout_s
            )
            self.namesrv = self._names.facts["namesrv"]
        if self._broker is None:
            self._broker = ServerProcess(self._broker_arguments(), timeout_s=self._timeout_s)
            self.namesrv = self._broker.facts["namesrv"]
            self.broker = self._broker.facts["broker"]

    def kill(self) -> None:
        """End the broker's process as a crash does; without `apart` the name server dies, too."""
        if self._broker is not None:
            self._broker.kill()
            self._broker = None

    def stop_broker(self) -> int:
        """Stop the broker's process cleanly and return its exit code."""
        assert self._broker is not None, "the broker does not run"
        process, self._broker = self._broker, None
        return process.stop()

    def restart(self) -> None:
        """Start again what was killed or stopped."""
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        assert self._broker is not None, "the broker does not run"
        return self._broker.pid

    @property
    def stderr(self) -> str:
        """What the broker's process has logged since it was started last."""
        assert self._broker is not None, "the broker does not run"
        return self._broker.stderr

    def stop(self) -> None:
        """Stop everything cleanly; a store of its own is removed."""
        for process in (self._broker, self._names):
            if process is not None:
                process.stop()
        self._broker = self._names = None
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _broker_arguments(self) -> list[str]:
        port, store = _port(self.broker), str(self.store)
        if self._apart:
            where = ["broker", f"-n{self.namesrv}", f"-p{port}"]
        else:
            where = ["standalone", f"--namesrv-port={_port(self.namesrv)}", f"--broker-port={port}"]
        return [*where, f"--store={store}", *self._sets]


class InProcessCluster:
    """The same on the running loop: `async with InProcessCluster(tmp_path) as cluster`.

    `cluster.name_server` and `cluster.role` are the running objects. Not for kills.
    """

    def __init__(
        self,
        store: Path | str,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        worker: Callable[[str], Worker] | None = None,
        **settings: object,
    ) -> None:
        """Take a store directory, what stands for clock, disk and threads, and settings."""
        keyed = {"brokerName": "broker-a", **_keyed(settings)}
        keyed["storePathRootDir"] = str(store)
        keyed.setdefault("listenPort", 0)
        given = [RawSetting(key, _text(value), "the test") for key, value in keyed.items()]
        self._loaded = load(_KINDS, given)
        self._clock = clock
        self._files = files
        self._worker = worker
        names = NamesrvSettings(listen_port=0, kv_config_path="")
        self.name_server = NameServer.open(names, clock=clock)
        self.role: Broker
        self._started = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        """The name server's address, "host:port"."""
        return self.name_server.address

    @property
    def broker(self) -> str:
        """The broker's address, "host:port"."""
        return self.role.address

    async def start(self) -> None:
        """Start both; when one of them cannot, raise its CometError and leave nothing running."""
        async with AsyncExitStack() as started:
            await self.name_server.start()
            started.push_async_callback(self.name_server.stop)
            self.role = Broker.open(
                dataclasses.replace(self._loaded.of(BrokerSettings), namesrv_addr=self.namesrv),
                self._loaded.of(StoreSettings),
                self._loaded.of(NetSettings),
                clock=self._clock,
                files=self._files,
                worker=self._worker or ThreadWorker,
                access=self._loaded.of(AccessSettings),
            )
            await self.role.start()
            started.push_async_callback(self.role.stop)
            self._started = started.pop_all()

    async def stop(self) -> None:
        """Stop both cleanly."""
        await self._started.aclose()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()


def _keyed(settings: dict[str, object]) -> dict[str, object]:
    """Replace field names by keys; what is neither is left for the loader to refuse."""
    keys = {field.name: key_of(field) for kind in _KINDS for field in dataclasses.fields(kind)}
    for old, new in _OLD_FIELD_NAMES.items():
        if old in settings:
            note = f"the setting {old} is called {new} now; release 0.2 drops the old name"
            warnings.warn(note, DeprecationWarning, stacklevel=4)
        keys[old] = keys[new]
    return {keys.get(name, name): value for name, value in settings.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _port(addr: str) -> str:
    return addr.rpartition(":")[2]
