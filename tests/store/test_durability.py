"""Durability is a set of conditions: a response waits for those that its message asked for."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from cometmq.store.message_store import MessageDraft, MessageStore, PutStatus
from cometmq.testing.memory_store import memory_store
from cometmq.testing.sim_files import SimFiles

if TYPE_CHECKING:
    from collections.abc import Callable


class LateCondition:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Callable[[PutStatus], None]]] = []

    def wait_for(self, log_begin: int, log_end: int, callback: Callable[[PutStatus], None]) -> None:
        self.asked.append((log_end, callback))

    def answer(self, status: PutStatus = PutStatus.PUT_OK) -> None:
        asked, self.asked = self.asked, []
        for _, callback in asked:
            callback(status)


def put(store: MessageStore, statuses: list[PutStatus], *, local_only: bool = False) -> int:
    placed = store.put(MessageDraft("T", 0, b"x"))
    assert placed.status is PutStatus.PUT_OK
    store.on_durable(statuses.append, local_only=local_only)
    return placed.phy_offset + placed.size


async def until_flushed(store: MessageStore) -> None:
    async with asyncio.timeout(10):
        while store.unflushed_bytes:
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_late_condition_holds_back_exactly_the_responses_that_asked_for_it(flush):
    async def scenario() -> None:
        store, condition = memory_store(flush_disk_type=flush), LateCondition()
        store.durability_conditions.add(condition)
        assert store.is_deferring
        waiting: list[PutStatus] = []
        local: list[PutStatus] = []
        end = put(store, waiting)
        put(store, local, local_only=True)
        await asyncio.sleep(0)
        if flush == "SYNC_FLUSH":
            await until_flushed(store)
        assert local == [PutStatus.PUT_OK]
        assert waiting == []
        assert [log_end >= end for log_end, _ in condition.asked] == [True]
        condition.answer()
        assert waiting == [PutStatus.PUT_OK]
        await store.stop()

    asyncio.run(scenario())


def test_a_condition_that_is_early_does_not_replace_the_local_flush():
    async def scenario() -> None:
        store, condition = memory_store(flush_disk_type="SYNC_FLUSH"), LateCondition()
        store.durability_conditions.add(condition)
        waiting: list[PutStatus] = []
        put(store, waiting)
        while not condition.asked:
            await asyncio.sleep(0)
        assert store.unflushed_bytes, "it is asked before the flush, to run beside it"
        condition.answer()
        assert waiting == []
        await until_flushed(store)
        assert waiting == [PutStatus.PUT_OK]
        await store.stop()

    asyncio.run(scenario())


def test_all_conditions_must_answer_and_the_worst_answer_is_the_one_reported():
    async def scenario() -> None:
        store, first, second = memory_store(), LateCondition(), LateCondition()
        store.durability_conditions.add(first)
        store.durability_conditions.add(second)
        waiting: list[PutStatus] = []
        put(store, waiting)
        await asyncio.sleep(0)
        first.answer(PutStatus.FLUSH_SLAVE_TIMEOUT)
        assert waiting == []
        second.answer()
        assert waiting == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        await store.stop()

    asyncio.run(scenario())


def test_a_write_that_fails_asks_no_condition():
    async def scenario() -> None:
        disk = SimFiles(Random(1))
        store, condition = memory_store(files=disk), LateCondition()
        store.durability_conditions.add(condition)
        waiting: list[PutStatus] = []
        put(store, waiting)
        disk.room = 0
        await asyncio.sleep(0)
        assert waiting == [PutStatus.SERVICE_NOT_AVAILABLE]
        assert condition.asked == []
        disk.room = None
        await store.stop()

    asyncio.run(scenario())


def test_a_condition_that_was_removed_is_asked_no_more():
    async def scenario() -> None:
        store, condition = memory_store(), LateCondition()
        store.durability_conditions.add(condition)
        store.durability_conditions.remove(condition)
        assert not store.is_deferring
        waiting: list[PutStatus] = []
        put(store, waiting)
        await asyncio.sleep(0)
        assert waiting == [PutStatus.PUT_OK]
        assert condition.asked == []
        await store.stop()

    asyncio.run(scenario())


class FailingCondition:
    """Raises when it is asked, maybe after it has answered."""

    def __init__(self, *, answers: bool = False) -> None:
        self._answers = answers

    def wait_for(self, log_begin: int, log_end: int, callback: Callable[[PutStatus], None]) -> None:
        if self._answers:
            callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
        raise OSError(5, "the replica cannot be reached")


async def until_durable(store: MessageStore) -> None:
    await asyncio.sleep(0)
    if store.is_sync:
        await until_flushed(store)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_condition_that_raises_fails_its_batch_and_is_logged_once(flush, caplog):
    async def scenario() -> None:
        store = memory_store(flush_disk_type=flush)
        for each in (FailingCondition(), LateCondition(), FailingCondition(answers=True)):
            store.durability_conditions.add(each)
        late = store.durability_conditions.active[1]
        assert isinstance(late, LateCondition)
        for _ in range(2):
            waiting: list[PutStatus] = []
            local: list[PutStatus] = []
            put(store, waiting)
            put(store, local, local_only=True)
            await until_durable(store)
            late.answer()
            assert (waiting, local) == ([PutStatus.FLUSH_SLAVE_TIMEOUT], [PutStatus.PUT_OK])
            assert store.get("T", 0, 0, 9, 1 << 20).count
        store.durability_conditions.remove(store.durability_conditions.active[2])
        put(store, alone := [])
        await until_durable(store)
        late.answer()
        assert alone == [PutStatus.SLAVE_NOT_AVAILABLE]
        await store.stop()

    asyncio.run(scenario())
    assert sum("cannot be reached" in record.exc_text for record in caplog.records) == 2
