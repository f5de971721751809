"""A program that uses the client where Python lacks what Windows lacks.

`python process_without_posix.py NAMESRV DIRECTORY` takes away modules, functions, flags and signals
that only POSIX systems have, then imports every module of the client, sends and consumes. Files
that are open can be neither renamed nor deleted, as on Windows. Prints what it consumed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import importlib
import json
import logging
import mmap
import multiprocessing.spawn
import os
import pkgutil
import signal
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 20
NOT_OURS = (click, concurrent.futures.thread, multiprocessing.spawn, ssl)
"""Imported before anything is taken away: what they need is not ours to test."""

MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "posix", "uvloop")
FUNCTIONS = (
    "fchmod", "fchown", "fdatasync", "fork", "forkpty", "getgid", "getuid", "getpgid", "killpg",
    "mkfifo", "nice", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv",
    "pwrite", "pwritev", "register_at_fork", "sendfile", "sched_getaffinity", "sched_setaffinity",
    "sched_yield", "statvfs", "sync", "sysconf", "uname", "wait", "O_CLOEXEC", "O_DIRECTORY",
    "O_DSYNC", "O_NONBLOCK", "O_SYNC", "RWF_NOWAIT", "POSIX_FADV_RANDOM",
)  # fmt: skip
MAPS = ("MAP_SHARED", "MAP_PRIVATE", "PROT_READ", "PROT_WRITE", "MADV_RANDOM", "MADV_WILLNEED")
SIGNALS = ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE")
SOCKETS = ("MSG_DONTWAIT", "MSG_NOSIGNAL", "SO_REUSEPORT")
PACKAGES = (
    "cometmq.client", "cometmq.compat", "cometmq.errors", "cometmq.metrics", "cometmq.model",
    "cometmq.net", "cometmq.rules", "cometmq.runtime", "cometmq.settings", "cometmq.wire",
)  # fmt: skip


def take_away() -> None:
    """Make this process as poor as one on Windows."""
    sys.modules.update(dict.fromkeys(MODULES))
    for owner, names in ((os, FUNCTIONS), (mmap, MAPS), (signal, SIGNALS), (socket, SOCKETS)):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    if hasattr(os, "process_cpu_count"):  # since 3.13; on Windows this is what it is
        os.process_cpu_count = os.cpu_count

    def missing(*_arguments: object, **_more: object) -> None:
        raise NotImplementedError

    loop = asyncio.SelectorEventLoop
    for name in ("add_signal_handler", "remove_signal_handler", "add_reader", "add_writer"):
        setattr(loop, name, missing)
    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, _refused_while_open(getattr(os, name)))
    sys.platform = "win32"


def _refused_while_open(original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*paths: Any, **more: Any) -> Any:
        places = {os.path.realpath(path) for path in paths}
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in places:
                    raise PermissionError(13, "the file is open, as Windows says", str(paths[0]))
        return original(*paths, **more)

    return guarded


def import_all() -> int:
    """Import every module that a client may need; return how many."""
    names = [*PACKAGES, "cometmq.cli.topic_commands", "cometmq.cli.doctor_command"]
    for package in PACKAGES:
        found = importlib.import_module(package)
        inside = pkgutil.walk_packages(getattr(found, "__path__", ()), f"{package}.")
        names += [one.name for one in inside]
    for name in names:
        importlib.import_module(name)
    return len(names)


def use(namesrv: str, directory: Path) -> dict[str, object]:
    """Send and consume in each way that has files, threads or loops of its own."""
    import cometmq

    with cometmq.Admin(namesrv=namesrv) as admin:
        admin.create_topic("T", 2)
    with cometmq.Producer("P", namesrv=namesrv) as producer:
        for number in range(COUNT):
            producer.send(cometmq.Message("T", b"%d" % number, keys=str(number % 3)))
    ways: dict[str, dict[str, Any]] = {
        "concurrent": {},
        "orderly": {"order": "queue", "max_attempts": 3},
        "by_key": {"order": "key", "state_dir": directory / "state"},
        "broadcasting": {"broadcasting": True, "offsets_dir": directory / "offsets"},
    }
    found: dict[str, object] = {}
    for name, options in ways.items():
        found[name] = consume(namesrv, name, options)
        if len(options) > 1 and name != "orderly":  # what was done is in its files
            found[f"{name} again"] = consume(namesrv, name, options, within_s=0.3)
    found["files"] = sorted({path.suffix for path in directory.rglob("*") if path.is_file()})
    return found


def consume(namesrv: str, group: str, options: dict[str, Any], within_s: float = 15.0) -> int:
    """How many messages a new member of the group gets."""
    import cometmq

    seen: set[bytes] = set()
    are_all = threading.Event()

    def handle(messages: list[Any]) -> None:
        seen.update(bytes(message.body) for message in messages)
        if len(seen) == COUNT:
            are_all.set()

    consumer = cometmq.PushConsumer(group, namesrv=namesrv, consume_from="first", **options)
    consumer.subscribe("T", "*", handle)
    with consumer:
        are_all.wait(within_s)
    return len(seen)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    take_away()
    modules = import_all()
    found = use(sys.argv[1], Path(sys.argv[2]))
    sys.stdout.write(json.dumps({"modules": modules, **found}))
