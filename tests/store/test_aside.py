"""What is not in memory is fetched off the loop, and asked for again."""

import asyncio
import os

import pytest

from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.message_store import GetStatus


async def filled(shop, count=200):
    """A store opened again, so that nothing counts as written lately."""
    shop.open(read_threads=2)
    for n in range(count):
        await shop.put(b"%d" % n)
    await shop.stop()
    return shop.open()


def test_a_get_that_may_not_wait_says_what_is_missing_and_a_patient_one_gets_it(tell, disk):
    async def story(shop):
        store = await filled(shop)
        disk.is_asleep = True
        with pytest.raises(NotInMemory):
            store.cold_reader.read_cached(lambda: store.get("T", 0, 0, 32, 1 << 20))
        assert store.get("T", 0, 0, 32, 1 << 20).status is GetStatus.FOUND  # may wait
        got = await store.cold_reader.read(lambda: store.get("T", 0, 0, 32, 1 << 20))
        assert (got.status, got.next_offset) == (GetStatus.FOUND, 20)

    tell(story)


def test_fresh_messages_are_got_without_asking_the_disk(tell, disk):
    async def story(shop):
        store = await filled(shop, 3)
        store.min_offset("T", 0)  # known from an earlier pull
        disk.is_asleep = True
        await shop.put(b"fresh")
        got = store.cold_reader.read_cached(lambda: store.get("T", 0, 3, 32, 1 << 20))
        assert got.count == 1

    tell(story)


def test_a_search_by_time_asks_as_often_as_it_meets_something_new(tell, disk):
    async def story(shop):
        shop.open()
        start = shop.clock.ms
        for n in range(100):
            shop.clock.ms = start + n * 10
            await shop.put(b"%d" % n)
        await shop.stop()
        store = shop.open()
        disk.is_asleep = True
        found = await store.cold_reader.read(lambda: store.offset_by_time("T", 0, start + 420))
        assert found == 42

    tell(story)


def test_a_file_that_is_deleted_while_it_is_read_does_no_harm(tell, disk):
    async def story(shop):
        store = await filled(shop)
        disk.is_asleep = True
        asked = asyncio.ensure_future(
            store.cold_reader.read(lambda: store.get("T", 0, 0, 32, 1 << 20))
        )
        await asyncio.sleep(0)
        store._parts.mapped_files.remove(store._parts.mapped_files.bases[0])
        got = await asked
        assert got.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING)

    tell(story)


def test_on_a_real_disk_what_the_system_dropped_is_fetched_by_a_thread(tell):
    async def story(shop):
        store = await filled(shop)
        for path in [*shop.log_files(), *(shop.root / "consumequeue").rglob("0*")]:
            if path.is_file():
                fd = os.open(path, os.O_RDWR)
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        read = []
        for offset in range(0, 200, 20):
            got = await store.cold_reader.read(lambda at=offset: store.get("T", 0, at, 20, 1 << 20))
            read.append(got.next_offset)
        assert read == list(range(20, 220, 20))

    tell(story)
