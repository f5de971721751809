"""Old messages are read off the loop: pulls wait for the disk, other requests do not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from broker.commands import records
from broker.harness import new_disk, run, running
from cometmq.settings.store import StoreSettings
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.commands import Harness
    from cometmq.store.log.mapped_file_queue import NotInMemory
    from cometmq.testing.sim_files import SimFiles

COUNT = 100
SMALL = StoreSettings(commit_log_file_bytes=1 << 17, max_hash_slot_num=1000, max_index_num=1000)


@pytest.fixture
def disk() -> SimFiles:
    return new_disk()


@asynccontextmanager
async def asleep(disk: SimFiles) -> AsyncIterator[Harness]:
    """A broker with old messages, none of which is in memory."""
    async with running(SMALL, disk=disk) as harness:
        client = await harness.client()
        for n in range(COUNT):
            await client.send("T", b"%d" % n)
    async with running(SMALL, disk=disk) as harness:
        disk.is_asleep = True
        yield harness


def count_misses(harness: Harness, misses: list[int]) -> None:
    fetch = harness.broker.store.cold_reader.fetch

    async def counted(missing: NotInMemory) -> None:
        misses.append(missing.length)
        await fetch(missing)

    harness.broker.store.cold_reader.fetch = counted  # type: ignore[method-assign]


def test_a_pull_of_old_messages_gets_them_once_a_thread_has_fetched_them(disk: SimFiles) -> None:
    async def scenario() -> None:
        misses: list[int] = []
        async with asleep(disk) as harness:
            count_misses(harness, misses)
            client = await harness.client()
            found = [record.body for record in await client.drain("T")]
            assert found == [b"%d" % n for n in range(COUNT)]
            answer = await client.call(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId="0", timestamp="0"
            )
            assert answer.ext["offset"] == "0"
        assert misses

    run(scenario())


def test_sends_are_answered_while_a_pull_waits_for_the_disk(disk: SimFiles) -> None:
    async def scenario() -> None:
        async with asleep(disk) as harness:
            go_on = asyncio.Event()
            fetch = harness.broker.store.cold_reader.fetch

            async def slow(missing: NotInMemory) -> None:
                await go_on.wait()
                await fetch(missing)

            harness.broker.store.cold_reader.fetch = slow  # type: ignore[method-assign]
            reader, sender = await harness.client(), await harness.client()
            pull = asyncio.ensure_future(reader.pull("T"))
            for _ in range(3):
                assert (await sender.send("Now", b"x")).code == ResponseCode.SUCCESS
            assert not pull.done()
            go_on.set()
            assert len(records(await pull)) == 32

    run(scenario())


def test_nothing_more_is_read_for_a_pull_whose_connection_has_closed(disk: SimFiles) -> None:
    async def scenario() -> None:
        async with asleep(disk) as harness:
            store, reads = harness.broker.store, []
            reader = harness.broker._handlers.pull._reader
            read = reader.read
            reader.read = lambda *asked: reads.append(asked) or read(*asked)  # type: ignore[method-assign,func-returns-value]
            fetch, fetches = store.cold_reader.fetch, []

            async def slow(missing: NotInMemory) -> None:
                fetches.append(missing)
                while harness.broker._server.protocols:
                    await asyncio.sleep(0.001)
                await fetch(missing)
                asyncio.get_running_loop().call_later(0.05, is_over.set)

            store.cold_reader.fetch = slow  # type: ignore[method-assign]
            is_over, client = asyncio.Event(), await harness.client()
            pull = asyncio.ensure_future(client.pull("T"))
            while not fetches:
                await asyncio.sleep(0.001)
            client.close()
            await is_over.wait()
            assert len(reads) == len(fetches) == 1
            await asyncio.wait([pull])
            assert pull.exception()

    run(scenario())


def test_a_commit_that_came_with_a_pull_is_made_once(disk: SimFiles) -> None:
    async def scenario() -> None:
        async with asleep(disk) as harness:
            client = await harness.client()
            offsets = harness.broker.state.offsets
            fetch = harness.broker.store.cold_reader.fetch

            async def meanwhile(missing: NotInMemory) -> None:
                offsets.commit("G", "T", 0, 50)
                await fetch(missing)

            harness.broker.store.cold_reader.fetch = meanwhile  # type: ignore[method-assign]
            await client.pull("T", consumer_group="G", sys_flag=5, commit_offset=7)
            assert offsets.committed("G", "T", 0) == 50

    run(scenario())
