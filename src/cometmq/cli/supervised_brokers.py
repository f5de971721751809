"""Several brokers for `standalone`, each in a process of its own, started again when one ends.

Owns the processes, their stores and ports, and their output; leaves their settings to the command
`broker`. Invariants: a broker keeps its name, store and port for life; a process ends with ours,
also when ours is killed. Bounded: `BROKERS_MAX` processes, a line of output of `LINE_BYTES_MAX`.
Java: none
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cometmq.errors import CometError, SettingsError
from cometmq.rules.failures.retry_policy import backoff_s

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

BROKERS_MAX = len(ascii_lowercase)
LINE_BYTES_MAX = 1 << 20
PORT_STEP = 10
"""From one broker's port to the next: each also takes the one after it and that two before it."""
STOP_S = 60.0
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.5, 30.0
_WELL_S = 60.0
"""A process that has run so long begins anew with the shortest pause."""
_POLL_S = 0.02
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What the service manager says to our process alone, which speaks for all."""
ONE_EACH = ("brokerName", "haListenPort", "storePathCommitLog", "authConfigPath")
"""Settings that cannot be the same for several brokers."""


class FirstPorts(NamedTuple):
    """The ports of the first broker; the next ones follow. 0: any free one at the first start."""

    listen: int
    monitoring: int


class BrokerPlace(NamedTuple):
    """Where one broker is: its name, its directory, its ports."""

    name: str
    store: Path
    port: int
    monitoring_port: int


def broker_places(count: int, store: Path, first: FirstPorts) -> list[BrokerPlace]:
    """The places of so many brokers below a directory.

    Raises SettingsError where the directory holds the store of one broker, or those of more.
    """
    if (store / "commitlog").exists():
        raise SettingsError(
            f"{store} holds the store of one broker: make it the first of several by moving it to "
            f"{store / 'broker-a'}, or choose another directory"
        )
    if (more := brokers_below(store)) > count:
        raise SettingsError(
            f"{store} holds the stores of {more} brokers, whose messages would be out of reach: "
            f"give --brokers {more}"
        )
    ports = _ports(first.listen, PORT_STEP, count, "broker port")
    shown_at = _ports(first.monitoring, 1, count, "metricsPromExporterPort")
    names = [f"broker-{letter}" for letter in ascii_lowercase[:count]]
    return [
        BrokerPlace(name, store / name, *each)
        for name, *each in zip(names, ports, shown_at, strict=True)
    ]


def _ports(first: int, step: int, count: int, what: str) -> list[int]:
    if first + step * (count - 1) > 65_535:
        raise SettingsError(f"the {what} {first} leaves no room for {count} brokers")
    return [first and first + step * at for at in range(count)]


def brokers_below(store: Path) -> int:
    """How many brokers have had their stores below a directory."""
    found = [
        at
        for at, letter in enumerate(ascii_lowercase, 1)
        if (store / f"broker-{letter}" / "commitlog").exists()
    ]
    return max(found, default=0)


class SupervisedBroker:
    """One broker: a role that runs the command `broker`, and again when its process ends."""

    def __init__(self, place: BrokerPlace, arguments: Sequence[str]) -> None:
        """`arguments`: those of `cometmq broker` beside name, store and port."""
        self.place = place
        self.facts: dict[str, Any] = {}
        """What its ready file says."""
        self.is_serving = False
        self.restarts = 0
        self._arguments = arguments
        self._directory = tempfile.TemporaryDirectory(prefix="cometmq-")
        self._ready = Path(self._directory.name) / "ready.json"
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process and wait until it accepts. Raises CometError when it ends instead."""
        try:
            await self._start()
            self._keeper = asyncio.create_task(self._keep())
        finally:
            if self._keeper is None:
                await self.stop()

    async def stop(self) -> None:
        """Stop the process, which flushes its store; it is killed after `STOP_S` seconds."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_S)
            except TimeoutError:
                log.error("%s does not stop in %g s and is killed", self.place.name, STOP_S)
                process.kill()
                await process.wait()
        if self._output is not None:
            await self._output
        self._directory.cleanup()

    async def _start(self) -> None:
        self._ready.unlink(missing_ok=True)
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cometmq.cli.main", "broker", "--of-standalone"),
            *self._arguments,
            *("--set", f"brokerName={self.place.name}"),
            *("--set", f"metricsPromExporterPort={self.place.monitoring_port}"),
            *("--store", str(self.place.store), "--port", str(self.place.port)),
            *("--ready-file", str(self._ready), "--until-stdin-closes"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env={key: value for key, value in os.environ.items() if key not in _OURS},
            start_new_session=True,  # Ctrl-C is for our process, which stops the brokers in order
        )
        self._output = asyncio.create_task(self._show(process))
        while not self._ready.exists():  # recovery may take minutes, and says how far it is
            if process.returncode is not None:
                await self._output
                raise CometError(f"{self.place.name} ended as it started; it says why above")
            await asyncio.sleep(_POLL_S)
        self.facts = json.loads(self._ready.read_text(encoding="utf-8"))
        self.is_serving = True
        port = int(self.facts["broker"].rpartition(":")[2])
        self.place = self.place._replace(port=port)

    async def _keep(self) -> None:
        """Start the process again whenever it has ended."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            assert self._process is not None, "it was started"
            began = loop.time()
            code = await self._process.wait()
            self.is_serving = False
            failures = 1 if loop.time() - began > _WELL_S else failures + 1
            pause_s = backoff_s(failures, _PAUSE_FIRST_S, _PAUSE_MOST_S)
            log.error(
                "%s ended with %s; it is started again in %.1f s", self.place.name, code, pause_s
            )
            await asyncio.sleep(pause_s)
            try:
                self.restarts += 1
                await self._start()
            except (CometError, OSError) as error:
                log.error("%s was not started: %s", self.place.name, error)
            else:
                log.warning("%s serves again at %s", self.place.name, self.facts["broker"])

    async def _show(self, process: asyncio.subprocess.Process) -> None:
        """Write what a process says to our stderr, each line with its broker's name."""
        assert process.stderr is not None, "it is a pipe"
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # longer than the limit: what was read of it is gone
                line = b"(a line that is too long to show)\n"
            if not line:
                return
            text = line.decode(errors="replace").rstrip("\n").removeprefix("cometmq: ")
            click.echo(f"{self.place.name}: {text}", err=True)


class SupervisedBrokers:
    """All brokers as one role."""

    def __init__(self, places: Sequence[BrokerPlace], arguments: Sequence[str]) -> None:
        """`arguments` as of a `SupervisedBroker`."""
        self.brokers = [SupervisedBroker(place, arguments) for place in places]
        self.directory = places[0].store.parent
        """Where their directories are."""

    async def start(self) -> None:
        """Start all at once; when one cannot, stop the others and raise its CometError."""
        started = await asyncio.gather(
            *(one.start() for one in self.brokers), return_exceptions=True
        )
        for error in started:
            if error is not None:
                await self.stop()
                raise error

    async def stop(self) -> None:
        """Stop all."""
        await asyncio.gather(*(one.stop() for one in self.brokers))

    @property
    def addresses(self) -> dict[str, str]:
        """Where each broker listens, by its name."""
        return {one.place.name: one.facts["broker"] for one in self.brokers}

    def problems(self) -> list[str]:
        """Which brokers do not serve now."""
        return [
            f"{one.place.name} "
            + ("has ended and is started again" if one.facts else "has not started yet")
            for one in self.brokers
            if not one.is_serving
        ]

    @property
    def shown_at(self) -> dict[str, str]:
        """Where monitoring finds each broker, if it is asked for."""
        return {
            f"{one.place.name} monitoring": one.facts["monitoring"]
            for one in self.brokers
            if "monitoring" in one.facts
        }
