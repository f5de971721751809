"""What a handler returns or raises becomes an outcome."""

import asyncio
import functools
import logging

import pytest

from client.received_messages import received
from cometmq import ConsumeStatus, RetryLater
from cometmq.client.handling import handler_call as handlers


class Mute(Exception):
    """An error that cannot even say what it is."""

    def __str__(self):
        raise ValueError("no words")


def raising(error):
    def handler(messages):
        raise error

    return handler


@pytest.mark.parametrize(
    ("handler", "is_done"),
    [
        (lambda messages: None, True),
        (lambda messages: ConsumeStatus.CONSUME_SUCCESS, True),
        (lambda messages: ConsumeStatus.SUCCESS, True),
        (lambda messages: ConsumeStatus.RECONSUME_LATER, False),
        (lambda messages: ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, False),
        (lambda messages: True, False),
        (raising(ValueError("no")), False),
        (raising(SystemExit(1)), False),
        (raising(asyncio.CancelledError()), False),
        (raising(pytest.fail.Exception("neither an Exception")), False),
        (raising(Mute()), False),
        (lambda messages: messages.clear(), True),
        (lambda messages: messages.clear() or "nonsense", False),
        (raising(RetryLater("later", delay_level=4, suspend_ms=7)), False),
    ],
)
def test_what_a_handler_does_becomes_an_outcome_in_both_kinds(handler, is_done):
    async def twin(messages):
        return handler(messages)

    one = handlers.call_handler(handler, [received()])
    other = asyncio.run(handlers.call_async_handler(twin, [received()]))
    assert one == other
    assert one.is_done is is_done


def test_only_the_end_of_its_own_task_ends_an_async_handler_without_an_outcome():
    async def scenario():
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()

        async def waits_for_what_was_cancelled(messages):
            await gone

        async def hangs(messages):
            await asyncio.Event().wait()

        outcome = await handlers.call_async_handler(waits_for_what_was_cancelled, [received()])
        assert (outcome.is_done, outcome.reason) == (False, "CancelledError")
        task = asyncio.create_task(handlers.call_async_handler(hangs, [received()]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert not handlers.call_handler(raising(KeyboardInterrupt()), [received()]).is_done


def test_retry_later_carries_its_delay_and_is_not_logged(caplog):
    error = RetryLater("busy", delay_level=4, suspend_ms=7, done=9)
    with caplog.at_level(logging.DEBUG):
        outcome = handlers.call_handler(raising(error), [received()])
    assert outcome == handlers.HandlerOutcome(False, "RetryLater: busy", 4, 7, done_count=1)
    assert not caplog.records
    handlers.call_handler(raising(KeyError("k")), [received()])
    assert "KeyError" in caplog.text


def test_async_handlers_are_known_by_their_kind():
    async def plain_async(messages):
        pass

    class Caller:
        async def __call__(self, messages):
            pass

    assert all(map(handlers.is_async, (plain_async, Caller(), functools.partial(plain_async))))
    assert not any(map(handlers.is_async, (print, lambda m: None, [].append)))
