"""Old files are deleted by age, hour and free space; queues follow; newer files stay."""

import errno
from pathlib import Path

import pytest

from cometmq.store.message_store import GetStatus

HOUR_MS = 3_600_000


async def fill(harness, files=4):
    harness.open(commit_log_file_bytes=4096, consume_queue_file_bytes=200)
    number = await put_until(harness, files)
    await harness.store._maintenance.checkpoint_queues()
    return number


async def put_until(harness, files):
    """Put until there are so many files, and flush the log; no checkpoint is written."""
    number = 0
    while len(harness.store._parts.mapped_files.bases) < files:
        await harness.put(b"%d" % number + bytes(300))
        number += 1
        if number % 10 == 0:
            await harness.store._queues.write_pending()
    harness.store._parts.flusher.request([], [], harness.clock.ms)
    await harness.store._parts.flusher.wait_until_idle()
    return number


def bases(harness):
    return [base // 4096 for base in harness.store._parts.mapped_files.bases]


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
def test_files_are_deleted_by_age_hour_and_free_space(
    run_scenario, disk, hour, age_hours, used, left
):
    async def scenario(harness):
        await fill(harness)
        harness.clock.ms += age_hours * HOUR_MS
        harness.clock.hour = hour
        disk.used = disk.total * used // 100
        await harness.store._maintenance.clean()
        assert bases(harness) == left

    run_scenario(scenario)


def test_readers_of_what_is_gone_are_sent_to_what_is_there(run_scenario, disk):
    async def scenario(harness):
        count = await fill(harness)
        harness.clock.ms += 100 * HOUR_MS
        harness.clock.hour = 4
        await harness.store._maintenance.clean()
        store = harness.store
        low = store.min_offset("T", 0)
        assert 0 < low < count
        got = store.get("T", 0, 0, 32, 1 << 20)
        assert (got.status, got.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
        assert [b.rstrip(b"\0") for b in harness.bodies()] == [b"%d" % n for n in range(low, count)]
        assert store.store_time("T", 0, 0) == -1
        assert 0 < store._queues.find("T", 0).mapped_files.first <= low * 20
        await harness.crash()
        harness.open()
        assert harness.store.min_offset("T", 0) == low
        assert harness.store.max_offset("T", 0) == count

    run_scenario(scenario)


def test_a_power_cut_while_files_are_deleted_leaves_no_hole_in_the_log(run_scenario, disk):
    async def scenario(harness):
        count = await fill(harness, 8)
        harness.clock.ms += 100 * HOUR_MS
        harness.clock.hour = 4
        await harness.store._maintenance.checkpoint_queues()
        await harness.store._maintenance.clean()
        low = harness.store.min_offset("T", 0)
        await harness.crash()
        disk.power_cut()
        harness.open()
        assert (harness.store.min_offset("T", 0), harness.store.max_offset("T", 0)) == (low, count)

    run_scenario(scenario)


def test_what_no_checkpoint_covers_stays_however_full_the_disk(run_scenario, disk):
    async def scenario(harness):
        await fill(harness)
        disk.used = disk.total * 86 // 100
        for end, left in ((-1, 0), (4096, 0), (4097, 1), (3 * 4096, 2), (3 * 4096 + 1, 3)):
            harness.store._parts.checkpoint.saved_end = end
            await harness.store._maintenance.clean()
            assert bases(harness) == list(range(left, 4))

    run_scenario(scenario)


def test_a_power_cut_that_empties_the_newest_file_is_no_reason_to_refuse_a_start(
    run_scenario, disk
):
    """Retention leaves a durable record: a log without any is taken for one that is missing."""

    newest = Path("/store/commitlog") / f"{4096:020d}"

    def cut_power():
        disk.power_cut()
        disk.write(newest, bytes(4096))

    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        while len(harness.store._parts.mapped_files.bases) < 2:
            await harness.put(bytes(300))
        harness.store._parts.mapped_files.segments[0].open().sync()
        await harness.crash()
        cut_power()
        harness.open()
        count = harness.store.max_offset("T", 0)
        assert harness.store.max_phy_offset == 4096, "the log goes on with an empty file"
        await harness.put(b"not flushed")
        disk.used = disk.total * 86 // 100
        await harness.store._maintenance.clean()
        await harness.crash()
        cut_power()
        harness.open()
        assert harness.bodies() == [bytes(300)] * count
        assert (await harness.put()).queue_offset == count

    run_scenario(scenario)


def test_a_queue_whose_newest_messages_go_for_lack_of_space_goes_on_behind_them(run_scenario, disk):
    """Their entries may not be durable yet, and no other record says how far the queue came."""

    async def scenario(harness):
        await fill(harness, 1)
        await harness.put(queue_id=1)
        await put_until(harness, 4)
        disk.used = disk.total * 86 // 100
        await harness.store._maintenance.clean()
        await harness.crash()
        disk.power_cut()
        harness.open()
        assert (await harness.put(queue_id=1)).queue_offset == 1

    run_scenario(scenario)


def test_no_more_than_a_batch_of_files_is_deleted_at_once(run_scenario, disk):
    async def scenario(harness):
        await fill(harness, 8)
        harness.store._parts.retention._settings = harness.settings.__class__(
            delete_file_batch_max=2
        )
        harness.clock.ms += 100 * HOUR_MS
        harness.clock.hour = 4
        await harness.store._maintenance.clean()
        assert bases(harness) == [2, 3, 4, 5, 6, 7]

    run_scenario(scenario)


def test_a_kill_right_after_old_files_were_deleted_loses_nothing(run_scenario, disk, caplog):
    async def scenario(harness):
        await fill(harness)
        await harness.store._maintenance.checkpoint_queues()
        harness.clock.ms += 73 * HOUR_MS
        harness.clock.hour = 4
        await harness.store._maintenance.clean()
        assert bases(harness) == [3]
        await harness.crash()
        disk.kill()
        harness.open(commit_log_file_bytes=4096, consume_queue_file_bytes=200)
        assert "lost" not in caplog.text

    run_scenario(scenario)


def test_a_file_that_cannot_be_deleted_is_tried_again_before_those_behind_it(
    run_scenario, disk, caplog
):
    async def scenario(harness):
        count = await fill(harness, 8)
        harness.store._parts.retention.adjust(harness.settings.__class__(delete_file_batch_max=2))
        harness.clock.ms += 73 * HOUR_MS
        harness.clock.hour = 4
        disk.sync_error = OSError(errno.EIO, "broken disk")
        await harness.store._maintenance.clean()
        assert "old files cannot be deleted: [Errno 5] broken disk" in caplog.text
        disk.sync_error = None
        await harness.store._maintenance.clean()
        assert bases(harness) == [4, 5, 6, 7]
        assert [int(name) // 4096 for name in disk.names(harness.root / "commitlog")] == [
            4,
            5,
            6,
            7,
        ]
        await harness.crash()
        disk.kill()
        harness.open(commit_log_file_bytes=4096, consume_queue_file_bytes=200)
        assert harness.store.max_offset("T", 0) == count

    run_scenario(scenario)


def test_deleting_young_files_for_lack_of_space_is_a_warning_that_says_why(
    run_scenario, disk, caplog
):
    async def scenario(harness):
        await fill(harness)
        disk.used = disk.total * 86 // 100
        await harness.store._maintenance.clean()
        warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        why = "the disk is used to 86 % (diskSpaceCleanForciblyRatio=85)"
        assert len([line for line in warned if line.endswith(why)]) == 3

    run_scenario(scenario)
