"""Long work in slices: all of it is done, in order, and others are served between."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from cometmq.runtime.time_slices import SLICE_S, TimeSlices

if TYPE_CHECKING:
    from collections.abc import Iterator


def slow_pieces(count: int, each_s: float) -> Iterator[int]:
    for number in range(count):
        time.sleep(each_s)
        yield number


def test_all_pieces_come_in_their_order_and_others_are_served_between() -> None:
    async def scenario() -> None:
        slices, served = TimeSlices(), []

        async def neighbour() -> None:
            while True:
                served.append(time.monotonic())
                await asyncio.sleep(0)

        task = asyncio.create_task(neighbour())
        async with slices.lock:
            assert await slices.collect(slow_pieces(10, SLICE_S * 1.5)) == list(range(10))
        task.cancel()
        assert len(served) >= 10, "each piece took longer than a slice"

    asyncio.run(scenario())


def test_short_work_is_done_in_one_slice() -> None:
    async def scenario() -> None:
        slices, served = TimeSlices(), []
        asyncio.get_running_loop().call_soon(served.append, 1)
        async with slices.lock:
            assert await slices.collect(iter("abc")) == ["a", "b", "c"]
        assert not served

    asyncio.run(scenario())


def test_work_that_is_sliced_must_hold_the_lock() -> None:
    with pytest.raises(AssertionError, match="holds the lock"):
        asyncio.run(TimeSlices().collect([]))


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

    asyncio.run(scenario())
