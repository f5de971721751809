"""Copies ranges of files with their holes, by the system's own call where it has one.

A range that grows while it is copied is the caller's concern. Refuses to know what the bytes mean.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHUNK_BYTES = 8 << 20
_SEEK_DATA = getattr(os, "SEEK_DATA", None)
_SEEK_HOLE = getattr(os, "SEEK_HOLE", None)
_COPY_RANGE = getattr(os, "copy_file_range", None)
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}


def copy_range(
    source: Path, target: Path, start: int, end: int | None, copied: Callable[[int], None]
) -> None:
    """Copy bytes [start, end) of a file to the same place of another one, and make them durable.

    `end` None: to its end. The copy gets the size, the time of the last write and the permissions
    of the source; holes stay holes. `copied` is called with the number of each piece of data.
    FileNotFoundError: there is no such file. OSError: of another kind, with the path of `target`
    where the system names none.
    """
    try:
        _copy(source, target, start, end, copied)
    except OSError as problem:
        problem.filename = problem.filename or str(target)
        raise


def _copy(
    source: Path, target: Path, start: int, end: int | None, copied: Callable[[int], None]
) -> None:
    opened = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        stat = os.fstat(opened)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        made = os.open(target, flags, stat.st_mode & 0o777)
        try:
            os.ftruncate(made, stat.st_size)
            last = stat.st_size if end is None else min(end, stat.st_size)
            for at, length in _data(opened, start, last):
                _copy_piece(opened, made, at, length, copied)
            os.fsync(made)
            os.utime(made, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        finally:
            os.close(made)
    finally:
        os.close(opened)


def data_bytes(path: Path) -> int:
    """How much room a file takes; 0 where it is gone."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _data(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that are no holes."""
    at = start
    while at < end:
        if _SEEK_DATA is None or _SEEK_HOLE is None:
            yield at, end - at
            return
        try:
            begin = os.lseek(fd, at, _SEEK_DATA)
        except OSError as problem:
            if problem.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        if begin >= end:
            return
        at = min(os.lseek(fd, begin, _SEEK_HOLE), end)
        yield begin, at - begin


def _copy_piece(
    source: int, target: int, at: int, length: int, copied: Callable[[int], None]
) -> None:
    end = at + length
    while at < end:
        done = _copy_by_system(source, target, at, min(end - at, _CHUNK_BYTES))
        if done <= 0:
            data = os.pread(source, min(end - at, _CHUNK_BYTES), at)
            if not data:  # cut short meanwhile
                return
            done = _write_all(target, data, at)
        at += done
        copied(done)


def _copy_by_system(source: int, target: int, at: int, length: int) -> int:
    """How much the system copied by itself; 0: it cannot between these files."""
    if _COPY_RANGE is None:
        return 0
    try:
        return int(_COPY_RANGE(source, target, length, at, at))
    except OSError as problem:
        if problem.errno in _CANNOT:
            return 0
        raise


def _write_all(target: int, data: bytes, at: int) -> int:
    left = memoryview(data)
    while left:
        written = os.pwrite(target, left, at)
        left, at = left[written:], at + written
    return len(data)
