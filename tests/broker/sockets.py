"""A real broker on a real store that listens on a socket: for tests of sockets, disks and kills."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from broker.commands import Harness
from broker.harness import SMALL_STORE
from cometmq.broker.app import Broker
from cometmq.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.settings.store import StoreSettings


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario on a real loop, a minute at most."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


def new_broker(
    root: Path,
    store: StoreSettings = SMALL_STORE,
    conf: Path | None = None,
    files: Files | None = None,
    **settings: Any,
) -> Broker:
    settings = {"broker_name": "b0", "listen_port": 0, **settings}
    mine = BrokerSettings(store_path_root_dir=str(root), **settings)
    return Broker.open(mine, store, conf=conf, files=files)


@asynccontextmanager
async def running(
    root: Path, store: StoreSettings = SMALL_STORE, **settings: Any
) -> AsyncIterator[Harness]:
    broker = new_broker(root, store, **settings)
    await broker.start()
    harness = Harness(broker)
    try:
        yield harness
    finally:
        harness.close_clients()
        await broker.stop()


def two_ports() -> tuple[int, int]:
    """A port that was free a moment ago, after the one two below it."""
    for port in random.SystemRandom().sample(range(12_000, 32_000), 50):
        with ExitStack() as probes:
            try:
                for each in (port, port - 2):
                    probes.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port - 2, port
    raise AssertionError("no two free ports")
