"""A store on real files, opened and left in every way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from cometmq.runtime.system_clock_and_files import SystemFiles, ThreadWorker
from cometmq.settings.store import StoreSettings
from cometmq.store.message_store import GetStatus, MessageDraft, MessageStore, PutResult, PutStatus
from cometmq.testing.sim_files import SimClock, SimFiles
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import Files, Worker

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class StoreHarness:
    """Opens stores in one directory and does the usual errands. Everything on one loop."""

    def __init__(self, root: Path) -> None:
        self.root = root / "store"
        self.clock = SimClock()
        self.files: Files = SystemFiles()
        self.worker: Callable[[str], Worker] = ThreadWorker
        self.settings = small()
        self.store: MessageStore

    def open(self, *, refuse: Callable[[], None] = lambda: None, **changes: object) -> MessageStore:
        if changes:
            self.settings = small(**changes)
        self.store = MessageStore.open(
            self.root,
            self.settings,
            clock=self.clock,
            files=self.files,
            tags_code=tags_code,
            store_host=HOST,
            worker=self.worker,
            ram=1 << 30,
            refuse=refuse,
        )
        return self.store

    async def put(self, body: bytes = b"x", topic: str = "T", queue_id: int = 0) -> PutResult:
        placed = self.store.put(MessageDraft(topic, queue_id, body, b"TAGS\x01a\x02", born_ms=1))
        assert await self.wait_until_durable() is PutStatus.PUT_OK
        return placed

    async def wait_until_durable(self) -> PutStatus:
        answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self.store.on_durable(answer.set_result)
        return await asyncio.wait_for(answer, 10)

    def bodies(self, topic: str = "T", queue_id: int = 0, offset: int | None = None) -> list[bytes]:
        store, found = self.store, []
        offset = store.min_offset(topic, queue_id) if offset is None else offset
        going_on = (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
        while (got := store.get(topic, queue_id, offset, 32, 1 << 30)).status in going_on:
            found += [record.body for record in stored.iterate(got.body)]
            offset = got.next_offset
        return found

    async def crash(self) -> None:
        """Leave the store as a killed process does: what was not written is gone."""
        store = self.store
        await store._maintenance.stop()
        store._appender._end_batch = lambda: None  # type: ignore[method-assign]
        store._parts.close()
        store._is_stopped = True

    async def stop(self) -> None:
        await self.store.stop()

    def log_files(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())


def small(**changes: object) -> StoreSettings:
    given = {"commit_log_file_bytes": 16384, "consume_queue_file_bytes": 400}
    given |= {"max_hash_slot_num": 1500, "max_index_num": 60} | changes
    return StoreSettings(**given)


def tags_code(topic: str, raw: bytes, store_ms: int) -> int:
    tags = properties.find(raw, b"TAGS")
    return 0 if tags is None else sum(tags)


@pytest.fixture
def harness(tmp_path: Path) -> StoreHarness:
    return StoreHarness(tmp_path)


@pytest.fixture
def disk(harness: StoreHarness) -> SimFiles:
    """The harness's disk, a simulated one that can be full, asleep or broken."""
    harness.root = Path("/store")
    harness.files = disk = SimFiles(Random(1), harness.clock)
    return disk


Scenario = Callable[[StoreHarness], Awaitable[None]]


@pytest.fixture
def run_scenario(harness: StoreHarness) -> Callable[[Scenario], None]:
    """Run an async scenario with a harness, and close what it leaves open."""

    def run(scenario: Scenario) -> None:
        failed: list[object] = []

        async def whole() -> None:
            handle = asyncio.get_running_loop().set_exception_handler
            handle(lambda _loop, context: failed.append(context.get("exception", context)))
            try:
                await asyncio.wait_for(scenario(harness), 60)
            finally:
                if hasattr(harness, "store"):
                    await harness.store.stop()

        asyncio.run(whole())
        assert not failed, f"a callback of the loop has failed: {failed}"

    return run
