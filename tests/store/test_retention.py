"""Old files go, by age, hour and room on the disk; queues follow; nothing newer is touched."""

import pytest

from cometmq.store.message_store import GetStatus

HOUR_MS = 3_600_000


async def fill(shop, files=4):
    shop.open(commit_log_file_bytes=4096, consume_queue_file_bytes=200)
    number = 0
    while len(shop.store._parts.mapped_files.bases) < files:
        await shop.put(b"%d" % number + bytes(300))
        number += 1
        if number % 10 == 0:
            await shop.store._maintenance.write_queues()
    shop.store._parts.flusher.request([], [], shop.clock.ms)
    await shop.store._parts.flusher.wait_until_idle()
    return number


def bases(shop):
    return [base // 4096 for base in shop.store._parts.mapped_files.bases]


@pytest.mark.parametrize(
    ("hour", "age_hours", "used", "left"),
    [
        (4, 73, 50, [3]),
        (4, 71, 50, [0, 1, 2, 3]),
        (5, 73, 50, [0, 1, 2, 3]),
        (5, 73, 76, [3]),
        (5, 71, 76, [0, 1, 2, 3]),
        (5, 0, 86, [3]),
    ],
)
def test_files_go_by_age_hour_and_room(tell, disk, hour, age_hours, used, left):
    async def story(shop):
        await fill(shop)
        shop.clock.ms += age_hours * HOUR_MS
        shop.clock.hour = hour
        disk.used = disk.total * used // 100
        await shop.store._maintenance.clean()
        assert bases(shop) == left

    tell(story)


def test_readers_of_what_is_gone_are_sent_to_what_is_there(tell, disk):
    async def story(shop):
        count = await fill(shop)
        shop.clock.ms += 100 * HOUR_MS
        shop.clock.hour = 4
        await shop.store._maintenance.clean()
        store = shop.store
        low = store.min_offset("T", 0)
        assert 0 < low < count
        got = store.get("T", 0, 0, 32, 1 << 20)
        assert (got.status, got.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
        assert [b.rstrip(b"\0") for b in shop.bodies()] == [b"%d" % n for n in range(low, count)]
        assert store.store_time("T", 0, 0) == -1
        assert 0 < store._queues.find("T", 0).mapped_files.first <= low * 20
        await shop.crash()
        shop.open()
        assert shop.store.min_offset("T", 0) == low
        assert shop.store.max_offset("T", 0) == count

    tell(story)


def test_a_power_cut_while_files_go_leaves_no_hole_in_the_log(tell, disk):
    async def story(shop):
        count = await fill(shop, 8)
        shop.clock.ms += 100 * HOUR_MS
        shop.clock.hour = 4
        await shop.store._maintenance.checkpoint_queues()
        await shop.store._maintenance.clean()
        low = shop.store.min_offset("T", 0)
        await shop.crash()
        disk.power_cut()
        shop.open()
        assert (shop.store.min_offset("T", 0), shop.store.max_offset("T", 0)) == (low, count)

    tell(story)


def test_what_is_not_durable_yet_stays_however_full_the_disk(tell, disk):
    async def story(shop):
        await fill(shop)
        disk.used = disk.total * 86 // 100
        for flushed, left in ((0, 0), (4095, 0), (4096, 1), (3 * 4096 - 1, 2), (3 * 4096, 3)):
            shop.store._log.flushed = flushed
            await shop.store._maintenance.clean()
            assert bases(shop) == list(range(left, 4))

    tell(story)


def test_no_more_than_a_batch_of_files_goes_at_once(tell, disk):
    async def story(shop):
        await fill(shop, 8)
        shop.store._parts.retention._settings = shop.settings.__class__(delete_file_batch_max=2)
        shop.clock.ms += 100 * HOUR_MS
        shop.clock.hour = 4
        await shop.store._maintenance.clean()
        assert bases(shop) == [2, 3, 4, 5, 6, 7]

    tell(story)
