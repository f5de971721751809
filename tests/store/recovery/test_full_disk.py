"""A start on a full disk: room is made where retention may, else one sentence; never a signal."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import StoreCorrupt, StoreError, StoreFull
from cometmq.store.queues.queue_checksums import QueueChecksums
from cometmq.store.recovery.full_disk import ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.testing.sim_files import SimFiles
    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]

HOUR_MS = 3_600_000
MIB = 1 << 20


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of its own, for which one must be root."""
    place = tmp_path / "tmpfs"
    place.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if mount is None or os.getuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("mounting a tmpfs takes root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(place: Path) -> None:
    """Take all the room that is left."""
    with (place / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError as full:
            assert full.errno == errno.ENOSPC  # noqa: PT017 - the loop ends by it


async def fill(harness: StoreHarness, count: int, size: int = 1000) -> None:
    for _ in range(count):
        await harness.put(bytes(size))


async def full_store(harness: StoreHarness, disk: SimFiles) -> int:
    """Several log files, the checkpoint in the last, and a disk without room; how many files."""
    harness.open(commit_log_file_bytes=4096)
    await fill(harness, 20)
    await harness.stop()
    disk.used = disk.total
    return len(log_names(disk, harness))


def log_names(disk: SimFiles, harness: StoreHarness) -> list[str]:
    return disk.names(harness.root / "commitlog")


def test_the_oldest_files_are_deleted_and_never_the_newest(
    run_scenario: Run, disk: SimFiles
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        assert before > 3
        newest = log_names(disk, harness)[-1]
        harness.open(commit_log_file_bytes=4096)
        assert log_names(disk, harness) == [newest]
        assert 0 < len(harness.bodies()) < 20
        assert (await harness.put(b"more")).queue_offset == 20

    run_scenario(scenario)


def test_no_more_files_are_deleted_than_needed(run_scenario: Run, disk: SimFiles) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        disk.used = disk.total - ROOM_BYTES
        harness.open(commit_log_file_bytes=4096)
        assert len(log_names(disk, harness)) == before

    run_scenario(scenario)


def test_files_younger_than_the_retention_time_stay(run_scenario: Run, disk: SimFiles) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        harness.open(commit_log_file_bytes=4096, clean_forcibly=False)
        assert len(log_names(disk, harness)) == before
        await harness.stop()
        harness.clock.ms += 73 * HOUR_MS
        harness.open(commit_log_file_bytes=4096, clean_forcibly=False)
        assert len(log_names(disk, harness)) == 1

    run_scenario(scenario)


def test_what_recovery_may_have_to_read_stays(run_scenario: Run, disk: SimFiles) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        disk.delete(harness.root / "checkpoint")
        harness.open(commit_log_file_bytes=4096)
        assert len(log_names(disk, harness)) == before
        assert len(harness.bodies()) == 20

    run_scenario(scenario)


def test_one_log_line_says_what_was_deleted_and_nothing_of_it_is_called_lost(
    run_scenario: Run, disk: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        harness.clock.ms += HOUR_MS
        harness.open(commit_log_file_bytes=4096)
        said = [record.getMessage() for record in caplog.records]
        assert len([line for line in said if "deleted" in line]) == 1
        assert any(
            line.startswith(
                f"{before - 1} of the oldest files of the log /store/commitlog are deleted, "
                f"{4096 * (before - 1)} bytes, with the messages stored from 2023-11-14 22:13:20"
            )
            and line.endswith("the disk is used to 100 % (diskSpaceCleanForciblyRatio=85)")
            for line in said
        ), said
        await harness.stop()
        harness.open(commit_log_file_bytes=4096)
        assert "lost" not in caplog.text

    run_scenario(scenario)


def damage_the_end(disk: SimFiles, harness: StoreHarness) -> None:
    disk.delete(harness.root / "commitlog" / log_names(disk, harness)[-1])


def strange_queue_file(disk: SimFiles, harness: StoreHarness) -> None:
    disk.write(harness.root / "consumequeue/T/0/copy", b"x")


def bad_deletions(disk: SimFiles, harness: StoreHarness) -> None:
    disk.write(harness.root / "config/deletedTopics.json", b"[]")


@pytest.mark.parametrize("harm", [damage_the_end, strange_queue_file, bad_deletions])
def test_no_file_is_deleted_where_the_start_is_refused_for_another_reason(
    run_scenario: Run,
    disk: SimFiles,
    harm: Callable[[SimFiles, StoreHarness], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        await full_store(harness, disk)
        disk.make_dir(harness.root / "config")
        harm(disk, harness)
        before = {path: disk.read(path) for path in disk._names}
        with pytest.raises(StoreError) as refused:
            harness.open(commit_log_file_bytes=4096)
        assert not isinstance(refused.value, StoreFull)
        assert {path: disk.read(path) for path in disk._names} == before
        assert "deleted" not in caplog.text

    run_scenario(scenario)


def test_no_file_is_deleted_where_the_caller_refuses_the_start(
    run_scenario: Run, disk: SimFiles
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)

        def refuse() -> None:
            raise StoreCorrupt("a table of the broker is bad")

        with pytest.raises(StoreCorrupt, match="a table of the broker is bad"):
            harness.open(commit_log_file_bytes=4096, refuse=refuse)
        assert len(log_names(disk, harness)) == before

    run_scenario(scenario)


def test_a_start_that_made_room_and_then_failed_lost_nothing(
    run_scenario: Run, disk: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        await full_store(harness, disk)
        disk.sync_error = OSError(errno.EIO, "the disk is broken")
        # The deletion itself is synced by a directory; let that one pass.
        disk.check_sync, broken = (lambda: None), disk.check_sync
        writes, rewrite = [], QueueChecksums.write

        def fail_after(checksums: QueueChecksums, data: bytes) -> None:
            rewrite(checksums, data)
            writes.append(data)
            if len(log_names(disk, harness)) == 1:
                disk.check_sync = broken  # type: ignore[method-assign]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QueueChecksums, "write", fail_after)
            with pytest.raises(StoreError, match="broken"):
                harness.open(commit_log_file_bytes=4096)
        disk.sync_error = None
        assert writes
        assert len(log_names(disk, harness)) == 1
        disk.locked.clear()
        harness.open(commit_log_file_bytes=4096)
        assert "lost" not in caplog.text

    run_scenario(scenario)


def test_the_percentages_of_the_settings_count(run_scenario: Run, disk: SimFiles) -> None:
    """A large disk with little room left: only beyond what the settings say do young files go."""

    async def scenario(harness: StoreHarness) -> None:
        before = await full_store(harness, disk)
        harness.open(commit_log_file_bytes=4096, disk_clean_percent=100)
        assert len(log_names(disk, harness)) == before
        await harness.stop()
        harness.clock.ms += 73 * HOUR_MS
        harness.clock.hour = 5
        percent = {"disk_clean_percent": 100, "disk_used_percent_max": 100}
        harness.open(commit_log_file_bytes=4096, **percent)
        assert len(log_names(disk, harness)) == before  # old, but not at this hour
        await harness.stop()
        harness.clock.hour = 4
        harness.open(commit_log_file_bytes=4096, **percent)
        assert len(log_names(disk, harness)) == 1

    run_scenario(scenario)


def test_queues_and_index_follow_soon_after_the_start(run_scenario: Run, disk: SimFiles) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open(commit_log_file_bytes=4096)
        for number in range(150):
            await harness.put(b"%d" % number)
        await harness.store.lookup.catch_up()
        await harness.stop()
        disk.used = disk.total
        queue = harness.root / "consumequeue/T/0"
        before = len(disk.names(queue)), len(disk.names(harness.root / "index"))
        harness.open(commit_log_file_bytes=4096)
        assert len(disk.names(queue)) == before[0]
        await harness.store._maintenance.clean()
        left = len(disk.names(queue)), len(disk.names(harness.root / "index"))
        assert left[0] < before[0]
        assert left[1] < before[1]

    run_scenario(scenario)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_is_a_one_sentence_error_with_advice(
    harness: StoreHarness, disk: SimFiles, number: int
) -> None:
    disk.sync_error = OSError(number, os.strerror(number))
    with pytest.raises(StoreFull) as caught:
        harness.open()
    sentence = str(caught.value)
    assert sentence.startswith("the store /store cannot be opened: its disk is full")
    assert "cleanFileForciblyEnable=true or a smaller fileReservedTime" in sentence
    assert "\n" not in sentence


def test_files_are_deleted_on_a_real_disk_that_is_full(
    run_scenario: Run, harness: StoreHarness, tmpfs: Path
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.root = tmpfs / "store"
        settings = {"commit_log_file_bytes": MIB, "consume_queue_file_bytes": 20_000}
        settings["disk_clean_percent"] = 20
        harness.open(**settings)
        await fill(harness, 110, 100_000)
        await harness.stop()
        fill_up(tmpfs)
        with pytest.raises(StoreFull, match=r"its disk is full .* free some MiB there"):
            harness.open(**settings, clean_forcibly=False)
        assert not (harness.root / "abort").exists()
        harness.open(**settings)
        space = os.statvfs(tmpfs)
        assert space.f_bavail * space.f_frsize >= ROOM_BYTES - MIB
        found = harness.bodies()
        assert 0 < len(found) < 110
        assert (await harness.put(b"more")).queue_offset == 110

    run_scenario(scenario)


READ_A_HOLE = """
import sys
from pathlib import Path
from cometmq.runtime.system_clock_and_files import MappedFile
file = MappedFile(Path(sys.argv[1]), 4 << 20)
file.write(0, b"x" * 5000)
try:
    with open(sys.argv[2], "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
except OSError as full:
    print(full.errno)
assert file.read(4000, 2000) == b"x" * 1000 + bytes(1000)
assert file.read(2 << 20, 100) == bytes(100)
assert file.gather(0, [10, 1 << 20], [2, 2]) == b"xx" + bytes(2)
"""


def test_a_hole_of_a_mapped_file_on_a_full_tmpfs_is_read_without_a_signal(tmpfs: Path) -> None:
    command = [sys.executable, "-c", READ_A_HOLE, str(tmpfs / "log"), str(tmpfs / "filler")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{errno.ENOSPC}\n"), done.stderr
