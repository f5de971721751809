"""Waiting for a job of a worker thread as a coroutine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.runtime.clock_and_file_protocols import Worker


async def run_job(
    worker: Worker, job: Callable[[], None], after: Callable[[], None] | None = None
) -> None:
    """Run `job` in the worker and wait for it; OSError when it failed.

    `after` is called on the loop when the job has ended, even if the caller was cancelled.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(problem: OSError | None) -> None:
        if after is not None:
            after()
        if ended.done():  # the caller was cancelled
            return
        if problem is None:
            ended.set_result(None)
        else:
            ended.set_exception(problem)

    worker.submit(job, done)
    await ended
