"""What is not in memory is fetched by a worker thread, then the read runs a second time."""

import asyncio
import os

import pytest

from cometmq.store.log.commit_log import SMALL_BYTES
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.message_store import GetStatus
from cometmq.store.property_filter import PropertyFilter
from cometmq.wire.records import properties


async def filled(harness, count=200):
    """A reopened store, so that nothing counts as written lately."""
    harness.open(read_threads=2)
    for n in range(count):
        await harness.put(b"%d" % n)
    await harness.stop()
    return harness.open()


def test_a_get_that_may_not_wait_says_what_is_missing_and_one_that_may_wait_gets_it(
    run_scenario, disk
):
    async def scenario(harness):
        store = await filled(harness)
        disk.is_asleep = True
        with pytest.raises(NotInMemory):
            store.cold_reader.cached.get("T", 0, 0, 32, 1 << 20)
        assert store.get("T", 0, 0, 32, 1 << 20).status is GetStatus.FOUND  # may wait
        got = await store.cold_reader.run(lambda context: context.get("T", 0, 0, 32, 1 << 20))
        assert (got.status, got.next_offset) == (GetStatus.FOUND, 20)

    run_scenario(scenario)


def test_fresh_messages_are_got_without_asking_the_disk(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness, 3)
        store.min_offset("T", 0)  # known from an earlier pull
        disk.is_asleep = True
        await harness.put(b"fresh")
        got = store.cold_reader.cached.get("T", 0, 3, 32, 1 << 20)
        assert got.count == 1

    run_scenario(scenario)


def test_a_search_by_time_asks_as_often_as_it_meets_something_new(run_scenario, disk):
    async def scenario(harness):
        harness.open()
        start = harness.clock.ms
        for n in range(100):
            harness.clock.ms = start + n * 10
            await harness.put(b"%d" % n)
        await harness.stop()
        store = harness.open()
        disk.is_asleep = True
        found = await store.cold_reader.run(
            lambda context: context.offset_by_time("T", 0, start + 420)
        )
        assert found == 42

    run_scenario(scenario)


def test_a_file_that_is_deleted_while_it_is_read_does_no_harm(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness)
        disk.is_asleep = True
        asked = asyncio.ensure_future(
            store.cold_reader.run(lambda context: context.get("T", 0, 0, 32, 1 << 20))
        )
        await asyncio.sleep(0)
        store._parts.mapped_files.remove(store._parts.mapped_files.bases[0])
        got = await asked
        assert got.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING)

    run_scenario(scenario)


def test_on_a_real_disk_what_the_system_dropped_is_fetched_by_a_thread(run_scenario):
    async def scenario(harness):
        store = await filled(harness)
        for path in [*harness.log_files(), *(harness.root / "consumequeue").rglob("0*")]:
            if path.is_file():
                fd = os.open(path, os.O_RDWR)
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        read = []
        for offset in range(0, 200, 20):
            got = await store.cold_reader.run(
                lambda context, at=offset: context.get("T", 0, at, 20, 1 << 20)
            )
            read.append(got.next_offset)
        assert read == list(range(20, 220, 20))

    run_scenario(scenario)


def test_a_prepare_that_meets_cold_bytes_runs_again_and_its_apply_runs_once(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness)
        disk.is_asleep = True
        prepared, applied = [], []

        def prepare(context):
            prepared.append(context.cached_only)
            return context.get("T", 0, 0, 32, 1 << 20)

        def apply(found):
            applied.append(found.count)
            return found.status

        answer = store.cold_reader.prepare_and_apply(prepare, apply)
        assert applied == [], "nothing is applied before all of it was read"
        assert await answer is GetStatus.FOUND
        assert len(prepared) > 1
        assert all(prepared), "the loop never waits for the disk"
        assert applied == [20], "the queue entries of one file"

    run_scenario(scenario)


def test_what_is_in_memory_is_applied_at_once(run_scenario):
    async def scenario(harness):
        store = await filled(harness)
        found = store.cold_reader.prepare_and_apply(
            lambda context: context.record_at(0), lambda record: len(record or b"")
        )
        assert found == len(store.record_at(0))

    run_scenario(scenario)


def test_every_read_of_a_context_reports_what_is_not_in_memory(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness)
        await store._maintenance.write_queues()
        disk.is_asleep = True
        reads = [
            lambda context: context.get("T", 0, 0, 1, 1 << 20).body,
            lambda context: context.record_at(0),
            lambda context: context.entry("T", 0, 3),
            lambda context: context.offset_by_time("T", 0, harness.clock.ms + 1),
            lambda context: context.store_time("T", 0, 3),
        ]
        for read in reads:
            disk.fetched.clear()
            for segment in store._queues.find("T", 0).mapped_files.segments.values():
                segment.ahead = b""
            with pytest.raises(NotInMemory):
                read(store.cold_reader.cached)
            assert await store.cold_reader.run(read) == read(store._parts.reads)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("size", "reads"), [(200, 1), (SMALL_BYTES, 1), (SMALL_BYTES + 1, 2), (4000, 2)]
)
def test_a_filter_by_properties_waits_for_no_disk_and_is_asked_once_they_are_in_memory(
    run_scenario, disk, size, reads
):
    """Of a short record one read brings all; of a long one its head, then what is behind it."""

    async def scenario(harness):
        harness.open(read_threads=2)
        around = (await harness.put(b"", "U")).size
        placed = await harness.put(bytes(size - around))
        assert placed.size == size
        await harness.stop()
        store = harness.open()
        disk.is_asleep = True
        asked, missed_in_log = [], []
        wanted = PropertyFilter(lambda raw: not asked.append(raw), 8)
        while True:
            try:
                got = store.cold_reader.cached.get("T", 0, 0, 1, 1 << 20, None, wanted)
                break
            except NotInMemory as missing:
                assert not asked
                if missing.segment.mapped_files is store._parts.mapped_files:
                    missed_in_log.append(missing.at)
                await store.cold_reader.fetch(missing)
        assert got.count == 1
        assert properties.find(*asked, b"TAGS") == b"a"
        assert len(set(missed_in_log)) == len(missed_in_log) == reads

    run_scenario(scenario)


def test_an_error_of_prepare_ends_the_read_and_nothing_is_applied(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness)
        disk.is_asleep = True

        def prepare(context):
            context.record_at(0)
            raise LookupError("no such thing")

        applied = []
        with pytest.raises(LookupError):
            await store.cold_reader.prepare_and_apply(prepare, applied.append)
        assert applied == []

    run_scenario(scenario)


def test_keys_are_read_one_after_the_other(run_scenario, disk):
    async def scenario(harness):
        store = await filled(harness)
        disk.is_asleep = True
        found = await store.cold_reader.run_each(
            range(3), lambda context, offset: context.entry("T", 0, offset)
        )
        assert found == [store.entry("T", 0, offset) for offset in range(3)]

    run_scenario(scenario)
