"""The log's next file, made in a worker while the current one still has room.

To make a file takes two syncs, milliseconds on a quiet disk and a tenth of a second on a busy one,
which the loop would wait for. Decides when it is made and deletes it at a stop; refuses to know
records. Invariants: at most one file is preallocated, and it is empty; the log never waits for it
but makes the file itself when it is not ready; recovery deletes files after the end of the log.
Java: AllocateMappedFileService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.runtime.worker_jobs import run_job

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import OpenFile, Worker
    from cometmq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)


class FilePreallocator:
    """Makes the next file of one log. Belongs to the store's loop."""

    def __init__(self, commit_log: CommitLog, worker: Worker) -> None:
        self._log = commit_log
        self._mapped_files = commit_log.mapped_files
        self._worker = worker
        self._asked = -1

    def preallocate_if_due(self) -> None:
        """Have the next file made once half of the current one is written; once for each."""
        mapped_files = self._mapped_files
        base = mapped_files.base_of(self._log.written) + mapped_files.file_bytes
        if base == self._asked or base - self._log.written > mapped_files.file_bytes // 2:
            return
        assert base % mapped_files.file_bytes == 0
        assert base > self._log.written, "it is the file after the current one"
        self._asked = mapped_files.preallocated_base = base
        made: list[OpenFile] = []

        def make() -> None:
            made.append(
                mapped_files.files.open(
                    mapped_files.path_of(base), mapped_files.file_bytes, mapped=mapped_files.mapped
                )
            )
            made[0].sync()
            mapped_files.files.sync_dir(mapped_files.directory)

        def keep(problem: OSError | None) -> None:
            if problem is not None:
                log.info("%s could not be made ahead: %s", mapped_files.path_of(base), problem)
            if problem is None and mapped_files.preallocated_base == base:
                mapped_files.preallocated = made[0]
            else:
                for file in made:
                    file.close()

        self._worker.submit(make, keep)

    async def discard(self) -> None:
        """Delete what was made and is not needed: a store that is stopped ends with its log."""
        await run_job(self._worker, lambda: None)  # what is being made is there by then
        try:
            self._mapped_files.delete_preallocated()
        except OSError as problem:
            log.info("the empty file after the log stays until the next start: %s", problem)
