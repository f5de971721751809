"""A store in memory for unit tests: it behaves as a real one and touches no real file."""

from __future__ import annotations

import asyncio
from random import Random

from cometmq.store.message_store import GetStatus, MessageDraft, MessageStore, PutStatus
from cometmq.testing.memory_store import memory_store
from cometmq.testing.sim_files import SimFiles
from cometmq.wire.records import log_record as stored


async def put(store: MessageStore, body: bytes) -> PutStatus:
    placed = store.put(MessageDraft("T", 0, body, b"TAGS\x01a\x02KEYS\x01k\x02"))
    assert placed.status is PutStatus.PUT_OK
    answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    store.on_durable(answer.set_result)
    return await answer


def bodies(store: MessageStore) -> list[bytes]:
    return [record.body for record in stored.iterate(store.get("T", 0, 0, 32, 1 << 20).body)]


def test_messages_are_put_and_read_back() -> None:
    async def scenario() -> None:
        store = memory_store()
        assert await put(store, b"one") is PutStatus.PUT_OK
        assert bodies(store) == [b"one"]
        assert store.get("T", 0, 1, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert len((await store.lookup.query("T", "k", 10, 0, 1 << 60)).records) == 1
        await store.stop()

    asyncio.run(scenario())


def test_settings_are_those_of_a_store() -> None:
    async def scenario() -> None:
        store = memory_store(flush_disk_type="SYNC_FLUSH", max_message_bytes=3)
        assert store.is_sync
        assert store.put(MessageDraft("T", 0, b"four")).status is PutStatus.MESSAGE_ILLEGAL
        await store.stop()

    asyncio.run(scenario())


def test_a_second_store_on_the_same_disk_finds_what_was_flushed_before_the_power_cut() -> None:
    async def scenario() -> None:
        disk = SimFiles(Random(7))
        store = memory_store(files=disk, flush_disk_type="SYNC_FLUSH")
        assert await put(store, b"flushed") is PutStatus.PUT_OK
        disk.power_cut()
        again = memory_store(files=disk, flush_disk_type="SYNC_FLUSH")
        assert bodies(again) == [b"flushed"]
        await again.stop()

    asyncio.run(scenario())


def test_a_store_in_memory_runs_its_background_work() -> None:
    async def scenario() -> None:
        store = memory_store(flush_interval_ms=1, flush_least_pages=1)
        await store.start()
        await put(store, bytes(5_000))
        async with asyncio.timeout(10):
            while store.unflushed_bytes:
                await asyncio.sleep(0.001)
        await store.stop()

    asyncio.run(scenario())
