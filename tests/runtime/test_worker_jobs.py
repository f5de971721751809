"""Waiting for a job of a worker thread."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from cometmq.runtime.system_clock_and_files import ThreadWorker
from cometmq.runtime.worker_jobs import run_job
from cometmq.testing.sim_files import SimWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.runtime.clock_and_file_protocols import Worker


def fail() -> None:
    raise OSError(5, "broken")


def test_a_job_is_waited_for_and_its_error_is_the_callers() -> None:
    async def scenario() -> None:
        worker, done = ThreadWorker("test"), []
        await run_job(worker, lambda: done.append("job"), lambda: done.append("after"))
        assert done == ["job", "after"]
        with pytest.raises(OSError, match="broken"):
            await run_job(worker, fail, lambda: done.append("after"))
        assert done == ["job", "after", "after"]
        worker.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [lambda: ThreadWorker("test"), lambda: SimWorker(Random(1))])
def test_whatever_a_job_raises_its_caller_hears_of_it_and_the_next_job_is_done(
    make: Callable[[], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        worker, done = make(), []
        with pytest.raises(OSError, match=r"ZeroDivisionError: .*by zero"):
            await asyncio.wait_for(run_job(worker, lambda: done.append(1 // 0)), 10)
        await asyncio.wait_for(run_job(worker, lambda: done.append(2)), 10)
        assert done == [2]
        worker.close()

    asyncio.run(scenario())
    assert "ZeroDivisionError" in caplog.text


def test_what_comes_after_a_job_happens_though_its_caller_was_cancelled() -> None:
    async def scenario() -> None:
        worker, ended = ThreadWorker("test"), asyncio.Event()
        task = asyncio.create_task(run_job(worker, fail, ended.set))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait_for(ended.wait(), 30)
        with pytest.raises(asyncio.CancelledError):
            await task
        worker.close()

    asyncio.run(scenario())
