"""Long work in slices, by virtual time: all is done, in order, and others are served between."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, cast

import pytest

from cometmq.runtime.time_slices import SLICE_S, TimeSlices
from cometmq.testing.sim_loop import ITERATION_S, SimLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


def run(scenario: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(scenario)


def pieces(count: int, each_s: float) -> Iterator[int]:
    loop = cast("SimLoop", asyncio.get_running_loop())
    for number in range(count):
        loop.pass_time(each_s)
        yield number


def test_all_pieces_come_in_their_order_and_others_are_served_between() -> None:
    async def scenario() -> None:
        slices, served = TimeSlices(), []

        async def neighbour() -> None:
            while True:
                served.append(asyncio.get_running_loop().time())
                await asyncio.sleep(0)

        task = asyncio.create_task(neighbour())
        async with slices.lock:
            assert await slices.collect(pieces(30, SLICE_S * 0.4)) == list(range(30))
        task.cancel()
        waits = [after - before for before, after in itertools.pairwise(served)]
        assert len(served) == 10, "once in three pieces, which are longer than a slice"
        assert max(waits) == pytest.approx(SLICE_S * 1.2, abs=2 * ITERATION_S)

    run(scenario())


def test_short_work_is_done_in_one_slice() -> None:
    async def scenario() -> None:
        slices, served = TimeSlices(), []
        asyncio.get_running_loop().call_soon(served.append, 1)
        async with slices.lock:
            assert await slices.collect(pieces(3, SLICE_S / 4)) == [0, 1, 2]
        assert not served

    run(scenario())


def test_work_that_is_sliced_must_hold_the_lock() -> None:
    with pytest.raises(AssertionError, match="holds the lock"):
        run(TimeSlices().collect([]))  # type: ignore[arg-type]


def test_an_error_of_a_piece_reaches_the_caller() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("piece")

    async def scenario() -> None:
        slices = TimeSlices()
        async with slices.lock:
            with pytest.raises(ValueError, match="piece"):
                await slices.collect(broken())
        assert not slices.lock.locked()

    run(scenario())
