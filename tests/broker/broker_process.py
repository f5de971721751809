"""A broker in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from broker.commands import Client
from cometmq.net.channel import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

BROKER = """
import asyncio, json, sys
from cometmq.broker.app import Broker
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings

async def main():
    settings = BrokerSettings(
        store_path_root_dir=sys.argv[1], listen_port=0, message_delay_level="1s 2s 3s",
        dead_letter_deduplicate=True,
        transaction_timeout_ms=0, transaction_check_interval_ms=200,
    )
    store = StoreSettings(commit_log_file_bytes=4 * 1024 * 1024, flush_disk_type=sys.argv[2])
    broker = Broker.open(settings, store)
    await broker.start()
    print(json.dumps(broker.address), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class BrokerProcess:
    """A broker in a process of its own."""

    def __init__(self, root: Path, flush: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BROKER, str(root), flush], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address = json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def kill_amid(
        self, work: Coroutine[Any, Any, None], count: Callable[[], int], more: int
    ) -> None:
        """Kill it once `count` has grown by `more` through the work, and wait for its end."""
        working, target = asyncio.create_task(work), count() + more
        while count() < target and not working.done():
            await asyncio.sleep(0.001)
        self.kill()
        await working


async def client_of(process: BrokerProcess) -> Client:
    return Client(await connect(process.address), asyncio.Queue())
