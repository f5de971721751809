"""The handler that keeps what it gets, and the check of the order."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cometmq.model.message import MessageExt
from cometmq.testing import Inbox, assert_in_order


def message(offset: int, queue: int = 0, key: str | None = None) -> MessageExt:
    properties = b"" if key is None else f"__SHARDINGKEY\x01{key}\x02".encode()
    nowhere = bytes(8)
    return MessageExt(
        "T", queue, offset, b"%d" % offset, properties, 0, 0, 0, 0, 0, nowhere, 0, nowhere, 0, "b"
    )


def test_messages_are_kept_and_waited_for_from_a_thread():
    inbox = Inbox()
    sender = threading.Timer(0.05, inbox, ([message(0), message(1)],))
    sender.start()
    assert [each.body for each in inbox.wait(2)] == [b"0", b"1"] == inbox.bodies
    sender.join()


def test_a_loop_waits_for_what_a_thread_brings():
    async def scenario() -> None:
        inbox = Inbox()
        waiting = asyncio.ensure_future(inbox.arrived(3))
        for offset in range(3):
            await asyncio.to_thread(inbox, [message(offset)])
        assert len(await waiting) == 3
        assert len(await inbox.arrived(2)) == 3

    asyncio.run(scenario())


def test_what_does_not_come_is_an_error_that_says_what_did():
    inbox = Inbox()
    inbox([message(7)])
    with pytest.raises(AssertionError, match=r"1 of 2 messages arrived within 0\.01 s: \[b'7'\]"):
        inbox.wait(2, timeout_s=0.01)
    with pytest.raises(AssertionError, match="1 of 2"):
        asyncio.run(inbox.arrived(2, timeout_s=0.01))


def test_what_fails_is_not_kept():
    def fail(_message: MessageExt) -> None:
        raise ValueError("no")

    inbox = Inbox(fail)
    with pytest.raises(ValueError, match="no"):
        inbox([message(0)])
    assert not inbox.messages


def test_order_is_that_of_each_key_and_repeats_are_no_fault():
    assert_in_order([message(0, key="a"), message(5, key="b"), message(1, key="a"),
                     message(0, key="a"), message(2, key="a")])  # fmt: skip
    assert_in_order([message(9, queue=0), message(1, queue=1), message(2, queue=1)])


@pytest.mark.parametrize(
    "wrong",
    [
        [message(1, key="a"), message(0, key="a")],
        [message(0, queue=0, key="a"), message(1, queue=1, key="a")],
        [message(1), message(0)],
    ],
)
def test_what_comes_out_of_turn_is_named(wrong):
    with pytest.raises(AssertionError, match="came after"):
        assert_in_order(wrong)


def test_a_key_may_be_a_function():
    with pytest.raises(AssertionError, match="the key is 'all'"):
        assert_in_order([message(0, queue=0), message(0, queue=1)], key=lambda _: "all")
