"""A whole broker without a socket, a thread, a disk or a second of waiting.

`run` runs a scenario on a loop of virtual time; `running` composes a broker there, as `Broker.open`
and `Broker.start` always do, on a disk in memory; connections to it are joined in memory. So its
real handlers answer real frames, those of the fast paths included. What is about sockets, threads,
processes and kills uses `broker.sockets`, which has the same words.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from broker.commands import Harness
from cometmq.broker.app import Broker
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.testing.sim_files import SimFiles, SimWorker
from cometmq.testing.sim_loop import LoopClock, SimLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from cometmq.net.admission import Admission
    from cometmq.runtime.clock_and_file_protocols import Worker
    from cometmq.settings.access import AccessSettings

SMALL_STORE = StoreSettings(
    commit_log_file_bytes=16 * 1024 * 1024, max_hash_slot_num=5_000, max_index_num=20_000
)
SEED = 1
STORE = Path("/store")
CONFIG = STORE / "config"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time, an hour at most."""

    async def bounded() -> None:
        async with asyncio.timeout(3600):
            await scenario

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(bounded())


def now_ms() -> int:
    """The time of the brokers on this loop."""
    return LoopClock().now_ms()


def new_disk() -> SimFiles:
    """A disk in memory, for a scenario that starts a broker more than once."""
    return SimFiles(Random(SEED), LoopClock())


def stored_table(disk: SimFiles, name: str) -> Any:
    """One of the broker's tables as its file has it."""
    data = disk.read(CONFIG / name)
    assert data is not None, name
    return json.loads(data)


def leave_table(disk: SimFiles, name: str, table: object) -> None:
    """Put a table there, as another broker left it."""
    disk.make_dir(CONFIG)
    disk.write(CONFIG / name, json.dumps(table).encode())


def sim_worker(_name: str) -> SimWorker:
    """What stands for each of the store's threads."""
    return SimWorker(Random(SEED))


def new_broker(
    store: StoreSettings = SMALL_STORE,
    *,
    disk: SimFiles | None = None,
    conf: Path | None = None,
    worker: Callable[[str], Worker] = sim_worker,
    access: AccessSettings | None = None,
    admission: Admission | None = None,
    **settings: Any,
) -> Broker:
    """A broker on a disk in memory that does not run yet; `conf`: its settings file there."""
    settings = {"broker_name": "b0", "listen_port": 0, **settings}
    mine, disk = BrokerSettings(store_path_root_dir=str(STORE), **settings), disk or new_disk()
    return Broker.open(
        mine,
        store,
        clock=disk.clock,
        files=disk,
        worker=worker,
        conf=conf,
        access=access,
        admission=admission,
    )


@asynccontextmanager
async def running(store: StoreSettings = SMALL_STORE, **more: Any) -> AsyncIterator[Harness]:
    """A broker that runs in memory; `more` as for `new_broker`."""
    broker = new_broker(store, **more)
    await broker.start()
    harness = Harness(broker)
    try:
        yield harness
    finally:
        harness.close_clients()
        await broker.stop()
