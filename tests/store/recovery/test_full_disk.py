"""A start on a full disk: room is made where retention may, else one sentence; never a signal."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import StoreFull
from cometmq.store.recovery.full_disk import ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.store.conftest import Scenario, StoreHarness

    from cometmq.testing.sim_files import SimFiles

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
        harness.open(**settings)
        await fill(harness, 110, 100_000)
        await harness.stop()
        fill_up(tmpfs)
        with pytest.raises(StoreFull, match=r"its disk is full .* free some MiB there"):
            harness.open(**settings, clean_forcibly=False)
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
