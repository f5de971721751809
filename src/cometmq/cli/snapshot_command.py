"""`cometmq store snapshot`: a copy of a store while its broker runs, or of a stopped one.

Java: none.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.late_progress import LateProgress
from cometmq.cli.printed_columns import print_json
from cometmq.cli.shared_options import json_option
from cometmq.errors import StoreError
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.store.snapshots.store_snapshot import StoreSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNIT = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--commit-log",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="storePathCommitLog of a stopped store; a running broker tells it.",
)
@json_option
def snapshot(directory: Path, target: Path, commit_log: Path | None, as_json: bool) -> None:
    """Copy the store in DIRECTORY to TARGET, a new or empty directory, while its broker runs.

    TARGET is a store as after a kill of the broker: all that was acknowledged before the command
    began is in it, and a broker starts from it. Run it as the broker's user on its machine.
    """
    files, clock = SystemFiles(), SystemClock()
    source = StoreDirectory(files, directory.absolute(), commit_log and commit_log.absolute())
    begun_ms, begun = clock.now_ms(), clock.monotonic_s()
    progress = _Progress(clock)
    copying = StoreSnapshot(files, clock, source, target, time.sleep, progress.add)
    progress.begin(copying.needed_bytes())
    with _disk_errors_named(target), progress.drawing:
        done = copying.run()
    facts: dict[str, Any] = {
        "store": str(source.root),
        "target": str(target),
        "begun_ms": begun_ms,
        "took_ms": int((clock.monotonic_s() - begun) * 1000),
        **done._asdict(),
    }
    with _disk_errors_named(target):
        files.write(target / "snapshot.json", json.dumps(facts, indent=2).encode())
        files.sync_dir(target)
    if as_json:
        print_json(facts)
        return
    click.echo(
        f"{done.copied_bytes / _UNIT:.1f} MiB copied to {target} "
        f"in {facts['took_ms'] / 1000:.1f} s: "
        f"the log from byte {done.log_begin} to {done.log_end}"
    )
    click.echo(f"check it with: cometmq store verify {target}", err=not sys.stdout.isatty())


@contextmanager
def _disk_errors_named(target: Path) -> Iterator[None]:
    """Say where the system refused, and that nothing may start from what is there."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or target
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        room = " where there is room" if problem.errno in _NO_ROOM else ""
        raise StoreError(
            f"the snapshot broke off at {where}: {reason}; {target} is no whole store: delete it "
            f"and take another snapshot{room}"
        ) from problem


class _Progress:
    """Bytes to a bar of MiB."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._left = 0

    def begin(self, total: int) -> None:
        """So many bytes there are now."""
        self.drawing = LateProgress("MiB copied", total // _UNIT, time=self._clock.monotonic_s)

    def add(self, size: int) -> None:
        """So many more are copied."""
        whole, self._left = divmod(self._left + size, _UNIT)
        if whole:
            self.drawing.step(whole)
