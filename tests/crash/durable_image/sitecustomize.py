"""Record what the kernel was asked to make durable; imported by Python before anything else.

A broker started with this folder on PYTHONPATH copies, at every `fsync`, `fdatasync` and `sync`,
the bytes of a file or the names of a directory to DURABLE_IMAGE, by inode. `assemble` of
`crash.power_image` makes a store of these copies alone: what a power cut would leave at worst.
FORGOTTEN_SYNC plants a fault: one kind of sync that does nothing.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

IMAGE = Path(os.environ["DURABLE_IMAGE"])
STORE = Path(os.environ["DURABLE_STORE"])
CHUNK = 1 << 20

_held: dict[int, int] = {}
_fsync, _fdatasync, _sync = os.fsync, os.fdatasync, os.sync


def record(fd: int) -> None:
    """Copy what the file or directory holds now."""
    found = os.fstat(fd)
    if found.st_ino not in _held:
        # While it is open its inode number is not given to another file.
        _held[found.st_ino] = os.dup(fd)
    target = IMAGE / str(found.st_ino)
    draft = target.with_suffix(f".{fd}.draft")
    if stat.S_ISDIR(found.st_mode):
        names = {name: os.stat(name, dir_fd=fd).st_ino for name in os.listdir(fd)}
        draft.write_text(json.dumps(names))
        target = target.with_suffix(".names")
    else:
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # `fd` may be for writing only
        copy_data(readable, draft, found.st_size)
        os.close(readable)
    draft.replace(target)


def copy_data(fd: int, draft: Path, size: int) -> None:
    """Copy the bytes of a sparse file, holes as holes."""
    with draft.open("wb") as copy:
        copy.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:  # only holes follow
                return
            end = min(os.lseek(fd, at, os.SEEK_HOLE), at + CHUNK)
            copy.seek(at)
            copy.write(os.pread(fd, end - at, at))
            at = end


def fsync(fd: int) -> None:
    record(fd)
    _fsync(fd)


def fdatasync(fd: int) -> None:
    record(fd)
    _fdatasync(fd)


def sync() -> None:
    for path in [STORE, *STORE.rglob("*")]:
        fd = os.open(path, os.O_RDONLY)
        record(fd)
        os.close(fd)
    _sync()


def forget(kind: str) -> None:
    """Make one kind of sync of the broker's file layer do nothing."""
    from cometmq.runtime import system_clock_and_files as layer

    if kind == "data":
        layer.PlainFile.sync = lambda self: None
    elif kind == "names":
        layer.SystemFiles.sync_dir = lambda self, directory: None
    elif kind == "tables":
        layer.SystemFiles.write = lambda self, path, data: path.write_bytes(data) and None
    else:
        sys.exit(f"no such sync: {kind}")


os.fsync, os.fdatasync, os.sync = fsync, fdatasync, sync
if "FORGOTTEN_SYNC" in os.environ:
    forget(os.environ["FORGOTTEN_SYNC"])
