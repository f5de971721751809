"""The real files, lock, clock and worker thread."""

import asyncio
import errno
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import StoreError
from cometmq.runtime import system_clock_and_files
from cometmq.runtime.system_clock_and_files import (
    MappedFile,
    SystemClock,
    SystemFiles,
    ThreadWorker,
    ram_bytes,
)


@pytest.fixture
def files():
    return SystemFiles()


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_is_grown_written_cut_and_read(tmp_path, files, mapped):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    file = files.open(path, 10_000, mapped=mapped)
    file.write(9_000, b"new")
    assert (file.read(0, 5), file.read(9_000, 3)) == (b"old\0\0", b"new")
    assert file.read(9_999, 10) == b"\0"
    file.cut(1)
    file.sync()
    assert path.read_bytes() == b"o" + bytes(9_999)
    assert file.read(9_000, 3) == bytes(3)
    file.close()


def test_a_system_without_pread_writes_and_reads_the_same(tmp_path, files, monkeypatch):
    monkeypatch.setattr(system_clock_and_files, "_HAS_PREAD", False)
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")
    file = files.open(tmp_path / "f", 10_000, mapped=True)
    file.write(9_000, b"new")
    assert (file.read(9_000, 3), file.fetch(9_999, 10), file.read(0, 2)) == (b"new", b"\0", b"\0\0")
    file.sync()
    file.close()


def test_a_system_without_record_locks_says_where_brokers_run(tmp_path, files, monkeypatch):
    monkeypatch.setattr(system_clock_and_files, "fcntl", None)
    with pytest.raises(StoreError, match="run brokers on Linux or macOS, only clients run here"):
        files.lock(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_space_is_counted_as_df_counts_it(tmp_path, files):
    space = files.space(tmp_path)
    line = subprocess.run(
        ["df", "-P", "-B1", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()[1]
    used_percent = int(line.split()[4].rstrip("%"))
    assert abs(100 * space.used / space.total - used_percent) <= 2
    assert space.used + shutil.disk_usage(tmp_path).free == pytest.approx(space.total, rel=0.01)


def test_directories_are_made_listed_and_deleted(tmp_path, files):
    deep = tmp_path / "a" / "b"
    files.make_dir(deep)
    files.make_dir(deep)
    files.write(deep / "x", b"1")
    files.rename(deep / "x", deep / "y")
    assert (files.names(deep), files.names(tmp_path / "no")) == (["y"], [])
    assert (files.read(deep / "y"), files.read(deep / "x")) == (b"1", None)
    assert (files.stat(deep).size, files.stat(deep / "y").size) == (-1, 1)
    assert files.stat(deep / "x") is None
    files.delete(deep / "y")
    files.delete(deep / "y")
    files.delete(deep)
    assert files.names(tmp_path / "a") == []
    files.sync_all()


def test_a_lock_is_held_once_and_again_after_release(tmp_path, files):
    held = files.lock(tmp_path / "lock")
    assert files.lock(tmp_path / "lock") is None
    held.release()
    held.release()
    second = files.lock(tmp_path / "lock")
    assert second is not None
    second.release()


def test_a_worker_does_jobs_in_order_and_reports_errors():
    async def scenario():
        worker, seen = ThreadWorker("test"), []
        ended = asyncio.Event()

        def fail():
            raise OSError(5, "broken")

        worker.submit(lambda: seen.append("job"), lambda problem: seen.append(problem))
        worker.submit(fail, lambda problem: (seen.append(problem.errno), ended.set()))
        await asyncio.wait_for(ended.wait(), 30)
        worker.close()
        assert seen == ["job", None, 5]

    asyncio.run(scenario())
    ThreadWorker("never used").close()


def test_a_file_cut_short_while_it_is_opened_is_an_error_that_workers_pass_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "ftruncate", lambda fd, size: None)
    with pytest.raises(OSError, match="cannot be mapped"):
        SystemFiles().open(tmp_path / "file", 4096, mapped=True)


def test_the_clock_and_the_memory_are_plausible():
    assert SystemClock().now_ms() > 1_700_000_000_000
    assert 0 <= SystemClock().local_hour() < 24
    assert ram_bytes() > 1 << 28


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "read", "cut", "gather", "open again"]),
            st.integers(0, 30_000),
            st.integers(1, 9_000),
        ),
        max_size=20,
    )
)
def test_a_mapped_file_reads_what_was_written_and_zeros_in_its_holes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    size = 40_000
    path = tmp_path_factory.mktemp("mapped") / "file"
    file, want = MappedFile(path, size), bytearray(size)
    for step, at, length in steps:
        if step == "write":
            file.write(at, b"x" * length)
            want[at : at + length] = b"x" * length
        elif step == "cut":
            file.cut(at)
            want[at:] = bytes(size - at)
        elif step == "open again":
            file.close()
            file = MappedFile(path, size)
        elif step == "read":
            assert file.read(at, length) == want[at : at + length]
        else:
            assert file.gather(7, [7, at + 7], [3, 3]) == want[:3] + want[at : at + 3]
    assert file.read(0, size) == want
    file.close()


def test_a_file_system_that_cannot_tell_what_is_in_memory_reads_at_once(
    tmp_path, files, monkeypatch
):
    def refuse(*_args):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    file = files.open(tmp_path / "f", 10_000)
    file.write(0, b"here")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_cached(0, 4) == b"here"
    file.close()
