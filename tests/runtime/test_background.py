"""Background tasks: an error is logged and does not end them; a stop does."""

import asyncio
import gc
import warnings

from cometmq.runtime.background import BackgroundTasks


def logged_errors(caplog):
    """Messages and errors, whatever format the handlers of this process have."""
    return [f"{one.getMessage()}: {one.exc_info[1]!r}" for one in caplog.records if one.exc_info]


def test_background_work_goes_on_after_an_error_and_ends_when_stopped(caplog):
    async def scenario():
        background, runs = BackgroundTasks("test"), []
        often = asyncio.Event()

        async def work():
            runs.append(1)
            if len(runs) == 1:
                raise ValueError("once")
            often.set()

        background.every(0.001, work, name="work", first_s=0)
        background.spawn(asyncio.sleep(0), name="short")
        await asyncio.wait_for(often.wait(), 30)
        await background.stop()
        count = len(runs)
        await asyncio.sleep(0.01)
        assert len(runs) == count

    asyncio.run(scenario())
    (said,) = logged_errors(caplog)
    assert said.startswith("test: work")
    assert said.endswith("ValueError('once')")


def test_work_that_is_stopped_before_it_began_is_closed():
    async def work():
        raise AssertionError("it was stopped before")

    async def scenario():
        background = BackgroundTasks("test")
        background.spawn(work(), name="work")
        await background.stop()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(one.message) for one in said] == []


def test_one_piece_of_work_that_fails_is_logged_by_its_name(caplog):
    async def scenario():
        background = BackgroundTasks("test")

        async def fail():
            raise ValueError("alone")

        background.spawn(fail(), name="piece")
        await asyncio.sleep(0.01)
        await background.stop()

    asyncio.run(scenario())
    assert logged_errors(caplog) == ["test: piece: background work failed: ValueError('alone')"]
