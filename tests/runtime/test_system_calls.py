"""The real files seen from the system's side: what is synced, when, and what odd calls lead to."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.runtime import system_clock_and_files
from cometmq.runtime.system_clock_and_files import (
    MappedFile,
    PlainFile,
    SystemClock,
    SystemFiles,
    ThreadWorker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 10_000
SYNC = getattr(os, "fdatasync", os.fsync)


class Syncs:
    """Every sync of a descriptor: of which path, and what the file held then."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        self.held: dict[Path, bytes] = {}
        patch.setattr(os, "fsync", self._seen(os.fsync))
        patch.setattr(system_clock_and_files, "_fdatasync", self._seen(SYNC))

    def _seen(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 - it is no file's link
            self.paths.append(path)
            if path.is_file():
                self.held[path] = path.read_bytes()
            real(fd)

        return sync


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks Linux for names")


@needs_proc
def test_a_file_that_is_written_whole_is_synced_with_all_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    SystemFiles().write(tmp_path / "table", b"x" * 100_000)
    assert syncs.paths == [tmp_path / "table"]
    assert syncs.held[tmp_path / "table"] == b"x" * 100_000


@needs_proc
@pytest.mark.parametrize("mapped", [False, True])
def test_a_sync_is_one_of_the_file_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    file = SystemFiles().open(tmp_path / "log", SIZE, mapped=mapped)
    file.write(5, b"new")
    syncs = Syncs(monkeypatch)
    file.sync()
    assert syncs.paths == [tmp_path / "log"]
    assert syncs.held[tmp_path / "log"][5:8] == b"new"
    file.close()


@needs_proc
def test_each_name_of_a_new_path_is_synced_in_the_directory_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, syncs = SystemFiles(), Syncs(monkeypatch)
    files.make_dir(tmp_path / "a" / "b" / "c")
    assert syncs.paths == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    files.make_dir(tmp_path / "a" / "b" / "c")
    files.make_dir(tmp_path / "d" / "e", durable=False)
    assert len(syncs.paths) == 3, "nothing was to be synced"
    files.sync_dir(tmp_path / "d")
    assert syncs.paths[3:] == [tmp_path / "d"]


def test_a_directory_that_somebody_else_makes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = Path.is_dir, tmp_path / "a"

    def look(path: Path) -> bool:
        if path == made and not real(path):
            path.mkdir()
            return False
        return real(path)

    monkeypatch.setattr(Path, "is_dir", look)
    SystemFiles().make_dir(made)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_write_that_the_system_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file = SystemFiles().open(tmp_path / "f", SIZE, mapped=mapped)
    file.write(1_000, bytes(range(100)))
    assert file.read(999, 102) == b"\0" + bytes(range(100)) + b"\0"
    file.close()


def test_a_write_that_gets_on_no_further_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SystemFiles().open(tmp_path / "f", SIZE)
    monkeypatch.setattr(os, "pwrite", lambda _fd, _data, _at: 0)
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its number is what is checked
        file.write(0, b"x")
    assert raised.value.errno == errno.ENOSPC
    file.close()


PLACES = st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 1_000)), min_size=1, max_size=5)


@settings(max_examples=40)
@given(PLACES, st.integers(0, 5_000), st.integers(0, SIZE))
def test_pieces_are_gathered_from_both_kinds_of_file_as_from_their_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[tuple[int, int]],
    base: int,
    written: int,
) -> None:
    """In the order of their places, as the log is read; what was never written is a hole."""
    pieces = sorted(pieces)
    content = bytes(n % 251 + 1 for n in range(written)) + bytes(SIZE - written)
    want = b"".join(content[at : at + size] for at, size in pieces)
    places, sizes = [base + at for at, _ in pieces], [size for _, size in pieces]
    path = tmp_path_factory.mktemp("gather") / "f"
    for kind in (PlainFile, MappedFile):
        file = kind(path, SIZE)
        if written:
            file.write(0, content[:written])
        assert file.gather(base, places, sizes) == want
        with pytest.raises(ValueError, match="argument"):
            file.gather(base, places, [*sizes[:-1], 1, 1])
        file.close()
        path.unlink()


class Watched:
    """A mapping that notes how far it was looked at."""

    def __init__(self, mapped: MappedFile) -> None:
        self._map = mapped._map
        self.looked_at = 0
        mapped._map = self  # type: ignore[assignment]

    def __getitem__(self, part: slice) -> bytes:
        self.looked_at = max(self.looked_at, part.stop)
        return self._map[part]

    def close(self) -> None:
        self._map.close()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 9_000)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 9_000)), min_size=1, max_size=6),
)
def test_no_hole_is_looked_at_through_a_mapping(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[int, int]],
    reads: list[tuple[int, int]],
) -> None:
    """There a page would have to be made, and where a full tmpfs has none comes SIGBUS."""
    path = tmp_path_factory.mktemp("holes") / "f"
    for is_opened_again in (False, True):
        file = MappedFile(path, 400_000)
        if not is_opened_again:
            for at, length in writes:
                file.write(at, b"x" * length)
        watched = Watched(file)
        for at, length in reads:
            file.read(at, length)
            file.gather(0, [at], [length])
        first_hole = os.lseek(file._fd, 0, os.SEEK_HOLE)
        assert watched.looked_at <= first_hole
        file.close()


def test_what_was_written_side_by_side_is_read_through_the_mapping(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", SIZE)
    file.write(0, b"a" * 4_096)
    file.write(4_096, b"b" * 4_096)
    watched = Watched(file)
    assert file.read(4_000, 4_192) == b"a" * 96 + b"b" * 4_096
    assert file.gather(10, [10 + 8_000], [192]) == b"b" * 192
    assert watched.looked_at == 8_192, "it needed a system call"
    file.close()


@settings(max_examples=30)
@given(st.integers(0, SIZE), st.integers(0, SIZE), st.integers(300, 9_000))
def test_what_is_in_memory_is_read_as_it_is_however_the_system_cuts_it(
    tmp_path_factory: pytest.TempPathFactory, at: int, length: int, most: int
) -> None:
    content = bytes(n % 251 for n in range(SIZE))
    file = PlainFile(tmp_path_factory.mktemp("cached") / "f", SIZE)
    file.write(0, content)
    real = os.preadv
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            os, "preadv", lambda fd, into, *rest: real(fd, [memoryview(into[0])[:most]], *rest)
        )
        assert file.read_cached(at, length) == content[at : at + length]
    file.close()


def test_a_read_that_would_wait_for_the_disk_brings_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def wait(*arguments: object) -> int:
        asked.append(arguments[3:])
        raise OSError(errno.EAGAIN, "it would block")

    file = PlainFile(tmp_path / "f", SIZE)
    monkeypatch.setattr(os, "preadv", wait)
    assert file.read_cached(0, 4) is None
    assert asked == [(os.RWF_NOWAIT,)], "without it the loop waits for the disk"
    monkeypatch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "bad")))
    with pytest.raises(OSError, match="bad"):
        file.read_cached(0, 4)
    monkeypatch.setattr(system_clock_and_files, "_NOWAIT", 0)
    file.write(3, b"here")
    assert file.read_cached(3, 4) == b"here"
    file.close()


TAKE = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY if os.path.isdir(sys.argv[1]) else os.O_RDWR)
try:
    if os.path.isdir(sys.argv[1]):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(3)
"""


@pytest.mark.parametrize("is_directory", [False, True])
def test_another_process_does_not_get_a_lock_that_is_held(
    tmp_path: Path, is_directory: bool
) -> None:
    place = tmp_path if is_directory else tmp_path / "lock"

    def is_free() -> bool:
        done = subprocess.run([sys.executable, "-c", TAKE, str(place)], check=False, timeout=30)
        assert done.returncode in (0, 3)
        return done.returncode == 0

    held = SystemFiles().lock(place)
    assert held is not None
    assert not is_free()
    held.release()
    assert is_free()
    if not is_directory:
        assert place.read_bytes() == b"lock", "Java's broker writes it, too"


def test_a_lock_that_another_process_has_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    hold = TAKE + "print('held', flush=True)\ninput()\n"
    command = [sys.executable, "-c", hold, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert SystemFiles().lock(tmp_path / "lock") is None
        holder.communicate(b"\n")
    held = SystemFiles().lock(tmp_path / "lock")
    assert held is not None
    held.release()


@pytest.mark.parametrize(
    ("number", "is_directory", "outcome"),
    [
        (errno.EACCES, False, None),
        (errno.EAGAIN, True, None),
        (errno.EOPNOTSUPP, True, "held"),
        (errno.EOPNOTSUPP, False, OSError),
        (errno.EIO, True, OSError),
    ],
)
def test_a_lock_that_the_system_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    is_directory: bool,
    outcome: object,
) -> None:
    """Somebody has it; or this file system locks no directories; or nobody knows."""

    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    place = tmp_path if is_directory else tmp_path / "lock"
    if outcome is OSError:
        with pytest.raises(OSError, match="refused"):
            SystemFiles().lock(place)
    else:
        held = SystemFiles().lock(place)
        assert (held is None) is (outcome is None)
        if held is not None:
            held.release()
    assert set(os.listdir("/proc/self/fd")) == before, "a descriptor stays open"  # noqa: PTH208


def test_no_descriptor_is_left_by_a_file_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(os, "ftruncate", lambda _fd, _size: None)
    with pytest.raises(OSError, match="cannot be mapped") as raised:
        MappedFile(tmp_path / "f", SIZE)
    assert raised.value.errno == errno.EIO
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_times_and_names_are_those_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_456_789))
    found = SystemFiles().stat(tmp_path / "f")
    assert found is not None
    assert found.modified_ms == 1_700_000_000_123
    clock = SystemClock()
    before = clock.monotonic_s()
    assert before * 1000 - 1 <= clock.monotonic_ms() <= clock.monotonic_s() * 1000
    assert isinstance(clock.monotonic_ms(), int)


def test_a_stamp_is_local_time_down_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    monkeypatch.setattr(clock, "now_ms", lambda: 1_700_000_000_045)
    done = subprocess.run(
        ["date", "-d", "@1700000000", "+%Y%m%d%H%M%S"], capture_output=True, text=True, check=True
    )
    assert clock.local_stamp() == done.stdout.strip() + "045"


def test_the_boot_id_is_the_systems_and_empty_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_clock_and_files, "_BOOT_ID", tmp_path / "boot_id")
    assert SystemFiles().boot_id() == ""
    (tmp_path / "boot_id").write_bytes(b"4f2a-\xff\n")
    assert SystemFiles().boot_id() == "4f2a-\ufffd"


def test_a_worker_holds_up_no_process_that_ends() -> None:
    worker = ThreadWorker("flush")
    assert worker._thread.daemon
    assert worker._thread.name == "flush"
    assert threading.current_thread() is not worker._thread
