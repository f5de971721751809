"""A condition that answers late holds back the responses that asked for it, on every send path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.harness import run, running
from cometmq.settings.store import StoreSettings
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.commands import Harness


class LateCondition:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[PutStatus], None]] = []

    def wait_for(self, log_begin: int, log_end: int, callback: Callable[[PutStatus], None]) -> None:
        self.asked.append(callback)

    def answer(self, status: PutStatus) -> None:
        asked, self.asked = self.asked, []
        for callback in asked:
            callback(status)


def watch_fast_path(harness: Harness) -> list[int]:
    """What the fast path takes of each chunk and frame, from the next connection on."""
    server, taken = harness.broker._server, []
    make_fast_path = server.fast_path

    class Watched:
        def __init__(self, connection):
            self.inner = make_fast_path(connection)

        def chunk(self, data):
            taken.append(self.inner.chunk(data))
            return taken[-1]

        def frame(self, frame):
            taken.append(self.inner.frame(frame))
            return taken[-1]

    server.fast_path = Watched
    return taken


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sends_wait_for_a_late_condition_unless_they_asked_not_to(flush):
    async def scenario() -> None:
        async with running(
            store=StoreSettings(
                commit_log_file_bytes=1 << 20,
                max_hash_slot_num=500,
                max_index_num=2_000,
                flush_disk_type=flush,
            )
        ) as harness:
            fast_frames = watch_fast_path(harness)
            client, condition = await harness.client(), LateCondition()
            assert (await client.send("T")).code == ResponseCode.SUCCESS  # the topic is there now
            await harness.broker.state.topics.writer.flushed()
            harness.broker.store.durability_conditions.add(condition)
            slow = asyncio.create_task(client.send("T"))
            fast = asyncio.create_task(client.send("T"))  # of the same form as the one before
            more = asyncio.create_task(client.send("T"))
            unconditional = {"properties": {"WAIT": "false"}}
            assert (await client.send("T", **unconditional)).code == ResponseCode.SUCCESS
            assert (await client.send("T", **unconditional)).code == ResponseCode.SUCCESS
            await asyncio.sleep(1)
            assert not any(send.done() for send in (slow, fast, more))
            assert any(fast_frames), "the fast path took sends, too"
            assert condition.asked
            condition.answer(PutStatus.PUT_OK)
            for send in (slow, fast, more):
                assert (await send).code == ResponseCode.SUCCESS
            late = asyncio.create_task(client.send("T"))
            await asyncio.sleep(1)
            condition.answer(PutStatus.FLUSH_SLAVE_TIMEOUT)
            assert (await late).code == ResponseCode.FLUSH_SLAVE_TIMEOUT

    run(scenario())


def test_a_send_that_waits_for_nobody_does_not_after_its_form_was_learned_either():
    async def scenario() -> None:
        async with running(store=StoreSettings(commit_log_file_bytes=1 << 20)) as harness:
            fast_frames = watch_fast_path(harness)
            client, condition = await harness.client(), LateCondition()
            assert (await client.send("T")).code == ResponseCode.SUCCESS
            await harness.broker.state.topics.writer.flushed()
            unconditional = {"properties": {"UNIQ_KEY": "A1", "WAIT": "false"}}
            for _ in range(3):
                assert (await client.send("T", **unconditional)).code == ResponseCode.SUCCESS
            assert any(fast_frames), "the fast path has learned it"
            harness.broker.store.durability_conditions.add(condition)
            async with asyncio.timeout(5):
                assert (await client.send("T", **unconditional)).code == ResponseCode.SUCCESS
            assert not condition.asked

    run(scenario())
