"""Making a stopped store empty without losing a byte: everything moves into a directory beside it.

For a slave whose history is not its master's: it starts again from its master, and what it had is
still there to be looked at. A second run after a crash moves what the first one left.
Java: none; administrators of Apache's slaves delete directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.store.recovery.store_directory import KNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.recovery.store_directory import StoreDirectory

_STAYS = frozenset({"lock", "lost+found", "unreplicated"})


def empty_store(files: Files, directory: StoreDirectory, stamp: str) -> list[Path]:
    """Move all of a store into `replaced-STAMP`; returns the directories that hold it now.

    Its log, where that is elsewhere, moves to a directory beside it. Raises StoreLocked while a
    broker uses the store, NotAStore for what is none; OSError: run it again.
    """
    directory.check()
    directory.take()
    try:
        target = directory.root / f"replaced-{stamp}"
        names = [name for name in files.names(directory.root) if name in KNOWN - _STAYS]
        _move(files, directory.root, target, names)
        places = [target]
        if directory.is_log_elsewhere:
            log = directory.commit_log
            places.append(log.with_name(f"{log.name}.replaced-{stamp}"))
            _move(files, log, places[-1], files.names(log))
        files.make_dir(directory.commit_log)
    finally:
        directory.release()
    return places


def _move(files: Files, source: Path, target: Path, names: list[str]) -> None:
    files.make_dir(target)
    for name in sorted(names):
        files.rename(source / name, target / name)
    files.sync_dir(target)
    files.sync_dir(source)
