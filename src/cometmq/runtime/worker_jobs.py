"""Jobs of worker threads: waiting for one as a coroutine, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.runtime.clock_and_file_protocols import Worker

log = logging.getLogger(__name__)


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


def problem_of(job: Callable[[], None]) -> OSError | None:
    """Do a job, for a worker: the OSError that it raised, or None.

    Any other exception is logged and becomes an OSError: whoever waits for the job hears of it, and
    the worker goes on with the next one.
    """
    try:
        job()
    except OSError as problem:
        return problem
    except Exception as error:
        log.exception("a job of a worker failed")
        return OSError(f"{type(error).__name__}: {error}")
    return None
