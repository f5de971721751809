"""Full disks, broken disks, directories that are taken or are no store: one sentence, no damage."""

import asyncio
import errno
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.errors import NotAStore, StoreCorrupt, StoreError, StoreFull, StoreLocked
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.message_store import MessageDraft, PutStatus
from store.inspected_store import tree

REFUSED = PutStatus.SERVICE_NOT_AVAILABLE


async def ask(harness, body=b"x", queue_id=0):
    """Put and wait; the status of the put and of its durability."""
    placed = harness.store.put(MessageDraft("T", queue_id, body))
    return placed.status, await harness.wait_until_durable()


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(run_scenario, disk):
    async def scenario(harness):
        harness.open()
        await harness.put(b"before")
        for room in (0, 1, 50, 160):
            disk.room = room
            assert await ask(harness, bytes(100)) == (PutStatus.PUT_OK, REFUSED)
            assert harness.bodies() == [b"before"]
        disk.room = None
        assert (await harness.put(b"after")).queue_offset == 1
        assert harness.bodies() == [b"before", b"after"]

    run_scenario(scenario)


def test_what_a_full_disk_refused_does_not_come_back_after_a_crash(run_scenario, disk):
    async def scenario(harness):
        harness.open(append_crc=False)
        await harness.put(b"before")
        size = harness.store.max_phy_offset
        for _ in range(3):
            harness.store.put(MessageDraft("T", 0, b"lost!!", b"TAGS\x01a\x02"))
        disk.room = 2 * size + 50
        assert await harness.wait_until_durable() is REFUSED
        disk.room = None
        await harness.put(b"after!")
        await harness.crash()
        harness.open()
        assert harness.bodies() == [b"before", b"after!"]

    run_scenario(scenario)


def test_a_full_disk_at_the_end_of_a_log_file_takes_the_blank_back_too(run_scenario, disk):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        await harness.put(bytes(3000))
        for _ in range(2):
            disk.room = 500
            harness.store.put(MessageDraft("T", 0, bytes(100)))
            harness.store.put(MessageDraft("T", 0, bytes(2000)))
            assert await harness.wait_until_durable() is REFUSED
        disk.room = None
        await harness.put(b"fits still")
        await harness.put(bytes(2000))
        assert [len(body) for body in harness.bodies()] == [3000, 10, 2000]
        await harness.crash()
        harness.open()
        assert [len(body) for body in harness.bodies()] == [3000, 10, 2000]

    run_scenario(scenario)


def test_a_disk_too_full_for_queue_entries_refuses_sends_until_they_are_written(run_scenario, disk):
    async def scenario(harness):
        harness.open()
        await harness.put(b"one")
        disk.room = 0
        await harness.store._maintenance.write_queues()
        assert await ask(harness) == (REFUSED, PutStatus.PUT_OK)
        assert harness.bodies() == [b"one"]
        disk.room = None
        await harness.store._maintenance.write_queues()
        assert await ask(harness, b"two") == (PutStatus.PUT_OK, PutStatus.PUT_OK)
        await harness.crash()
        harness.open()
        assert harness.bodies() == [b"one", b"two"]

    run_scenario(scenario)


def test_a_disk_above_its_watermark_refuses_sends_until_it_is_below(run_scenario, disk):
    async def scenario(harness):
        harness.open()
        for used, status in ((89, PutStatus.PUT_OK), (91, REFUSED), (90, PutStatus.PUT_OK)):
            disk.used = disk.total * used // 100
            await harness.store._maintenance.clean()
            assert (await ask(harness))[0] is status

    run_scenario(scenario)


def test_a_failed_flush_stops_the_log_and_loses_nothing_acknowledged(run_scenario, disk):
    async def scenario(harness):
        harness.open(flush_disk_type="SYNC_FLUSH")
        await harness.put(b"safe")
        disk.sync_error = OSError(errno.EIO, "broken disk")
        assert await ask(harness, b"unsure") == (PutStatus.PUT_OK, REFUSED)
        disk.sync_error = None
        assert await ask(harness) == (REFUSED, REFUSED)
        assert harness.bodies() == [b"safe"]
        await harness.stop()
        assert disk.stat(harness.root / "abort"), "an unsure stop is no stop in order"
        harness.open()
        assert harness.bodies()[0] == b"safe"

    run_scenario(scenario)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_failed_flush_is_reported_when_it_fails_and_at_the_stop(
    run_scenario, disk, caplog, flush
):
    async def scenario(harness):
        harness.open(flush_disk_type=flush)
        await harness.put(b"safe")
        disk.sync_error = OSError(errno.EIO, "broken disk")
        for _ in range(2):
            harness.store.put(MessageDraft("T", 0, b"unsure"))
            await harness.wait_until_durable()
            harness.store._parts.flusher.request([], [], 0)
            await harness.store._parts.flusher.wait_until_idle()
        await harness.stop()

    run_scenario(scenario)
    messages = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in messages] == [
        "the log /store/commitlog cannot be flushed, sends are refused until a restart",
        "the store /store could not be stopped in order",
    ]
    assert all("broken disk" in line for line in messages)


def test_a_slow_flush_is_answered_late_and_the_message_is_there_later(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=20)
        go_on = asyncio.Event()
        submit = store._parts.flush_worker.submit

        def slow(job, done):
            async def later():
                await go_on.wait()
                submit(job, done)

            tasks.append(asyncio.create_task(later()))

        tasks = []
        store._parts.flush_worker.submit = slow
        placed = store.put(MessageDraft("T", 0, b"x"))
        assert await harness.wait_until_durable() is PutStatus.FLUSH_DISK_TIMEOUT
        assert store.record_at(placed.phy_offset) is None
        go_on.set()
        while store.max_offset("T", 0) == 0:
            await asyncio.sleep(0.001)
        assert store.record_at(placed.phy_offset)

    run_scenario(scenario)


class NoRoomForMarks(SystemFiles):
    """A disk that is full when a start says that it runs."""

    is_full = False

    def write(self, path, data):
        if self.is_full and path.name == "abort.tmp":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, data)


def test_a_start_that_fails_late_leaves_no_file_open(run_scenario, harness):
    async def scenario(harness):
        harness.files = files = NoRoomForMarks()
        store = harness.open()
        for number in range(50):
            await harness.put(b"%d" % number, queue_id=number % 5)
        await store.stop()
        files.is_full, before = True, open_fds()
        with pytest.raises(StoreFull):
            harness.open()
        assert open_fds() == before
        files.is_full = False
        assert len(harness.open().queues()) == 5

    run_scenario(scenario)


def test_a_stop_that_fails_for_whatever_reason_gives_the_directory_back(run_scenario, harness):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"kept")
        before = store._maintenance.checkpoint_now
        store._maintenance.checkpoint_now = lambda: 1 // 0
        with pytest.raises(ZeroDivisionError):
            await store.stop()
        store._maintenance.checkpoint_now = before
        harness.open()
        assert harness.bodies() == [b"kept"]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("directory", "name"), [("commitlog", "000000000000000004096"), ("index", "7")]
)
def test_a_file_whose_name_is_another_number_is_refused_or_left_alone(
    run_scenario, harness, directory, name
):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"kept")
        await store.lookup.catch_up()
        await store.stop()
        path = harness.root / directory / name
        path.write_bytes(b"strange")
        if directory == "commitlog":
            with pytest.raises(NotAStore, match=f"{name} is no store file"):
                harness.open()
            path.unlink()
        harness.open()
        assert harness.bodies() == [b"kept"]
        assert path.exists() is (directory == "index")

    run_scenario(scenario)


def test_a_store_in_use_is_refused_by_name(run_scenario, harness):
    async def scenario(harness):
        store = harness.open()
        with pytest.raises(StoreLocked, match=f"{harness.root} is in use"):
            harness.open()
        await harness.put(b"still mine")
        await store.stop()
        harness.open()
        assert harness.bodies() == [b"still mine"]

    run_scenario(scenario)


LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_store_that_another_process_holds_by_a_record_lock_is_refused(run_scenario, harness):
    async def scenario(harness):
        await harness.open().stop()
        command = [sys.executable, "-c", LOCKER, str(harness.root / "lock")]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
            assert other.stdout.readline() == b"locked\n"
            with pytest.raises(StoreLocked):
                harness.open()
            other.stdin.close()
        harness.open()
        assert (harness.root / "lock").read_bytes() == b"lock"

    run_scenario(scenario)


@pytest.mark.parametrize("what", ["strange files", "a file", "another file in the log"])
def test_a_directory_that_is_no_store_is_left_as_it_was(harness, what):
    if what == "a file":
        harness.root.write_bytes(b"text")
    elif what == "strange files":
        (harness.root / "photos").mkdir(parents=True)
        (harness.root / "photos" / "1.jpg").write_bytes(b"jpg")
    else:
        (harness.root / "commitlog").mkdir(parents=True)
        (harness.root / "commitlog" / "notes.txt").write_bytes(b"text")
    before = tree(harness.root.parent)
    with pytest.raises(NotAStore) as caught:
        harness.open()
    assert str(harness.root) in str(caught.value)
    assert tree(harness.root.parent) == before
    assert str(caught.value).count("\n") == 0


def test_what_the_system_refuses_is_reported_in_one_sentence(harness, disk):
    disk.sync_error = OSError(errno.EACCES, "Permission denied")
    with pytest.raises(StoreError, match=r"/store cannot be opened: .*Permission denied"):
        harness.open()
    disk.sync_error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StoreFull, match="No space left"):
        harness.open()
    disk.sync_error = None
    assert not disk.locked


def test_another_file_size_than_the_store_has_is_said_so(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        for _ in range(10):
            await harness.put(bytes(1000))
        await harness.stop()
        with pytest.raises(NotAStore, match="another file size"):
            harness.open(commit_log_file_bytes=1 << 20)
        harness.open(commit_log_file_bytes=4096)
        assert len(harness.bodies()) == 10

    run_scenario(scenario)


def test_a_file_missing_between_two_others_is_named(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        for _ in range(10):
            await harness.put(bytes(1000))
        await harness.stop()
        second = harness.log_files()[1]
        second.rename(harness.root / "away")
        with pytest.raises(StoreCorrupt, match=second.name):
            harness.open()
        (harness.root / "away").rename(second)
        harness.open()
        assert len(harness.bodies()) == 10

    run_scenario(scenario)


def test_files_are_full_size_and_sparse(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=1 << 30, consume_queue_file_bytes=6_000_000)
        await harness.put()
        await harness.store._maintenance.write_queues()
        (log,) = harness.log_files()
        queue = harness.root / "consumequeue" / "T" / "0" / ("0" * 20)
        assert (log.name, log.stat().st_size) == ("0" * 20, 1 << 30)
        assert queue.stat().st_size == 6_000_000
        assert log.stat().st_blocks + queue.stat().st_blocks < 200

    run_scenario(scenario)


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_ten_thousand_queues_live_under_a_small_limit_of_open_files(run_scenario):
    async def scenario(harness):
        harness.open(open_files_max=50, commit_log_file_bytes=1 << 22)
        for round_ in range(2):
            for number in range(10_000):
                harness.store.put(MessageDraft(f"T{number % 100}", number // 100, b"%d" % round_))
            assert await harness.wait_until_durable() is PutStatus.PUT_OK
            await harness.store._maintenance.write_queues()
            assert open_fds() < 150
        for number in range(0, 10_000, 7):
            assert harness.bodies(f"T{number % 100}", number // 100) == [b"0", b"1"]
        await harness.crash()
        harness.open()
        assert len(harness.store.queues()) == 10_000
        for number in range(0, 10_000, 7):
            assert harness.bodies(f"T{number % 100}", number // 100) == [b"0", b"1"]
        assert open_fds() < 150

    run_scenario(scenario)


def test_a_deletion_that_was_taken_back_stays_so_after_a_stop_that_follows_at_once(
    run_scenario, disk
):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"kept", topic="T")
        await store.deletion.begin({"T"})
        disk.sync_error = OSError(errno.EIO, "the disk is in trouble")
        await store.deletion.take_back({"T"})
        disk.sync_error = None
        await harness.stop()
        store = harness.open()
        assert store.deletion.unfinished() == [], "the broker would delete it now"
        assert harness.bodies("T") == [b"kept"]

    run_scenario(scenario)
