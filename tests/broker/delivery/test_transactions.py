"""Transactions: half messages, committed and rolled back, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.commands import properties_of
from broker.delivery.transaction_commands import (
    COMMIT,
    HALF,
    OP,
    ROLLBACK,
    SELDOM,
    UNKNOWN,
    answer_question,
    end,
    half,
    offsets_of,
    produce,
    round_of,
)
from broker.harness import SMALL_STORE, now_ms, run, running
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import log_record as stored


def test_a_half_message_is_seen_by_nobody_until_it_is_committed() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            answer = await half(client, queue_id=2, flag=7, properties={"TAGS": "a", "KEYS": "k"})
            assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "0")
            assert answer.ext["transactionId"] == "H1"
            assert harness.broker.store.max_offset("T", 2) == 0
            assert (await client.pull("T", queue_id=2)).code == ResponseCode.PULL_NOT_FOUND
            (waiting,) = await client.drain(HALF)
            assert waiting.sys_flag & 0xC == 0
            shown = properties_of(waiting)
            assert shown["__transactionId__"] == "H1"
            assert (shown["REAL_TOPIC"], shown["REAL_QID"]) == ("T", "2")
            assert (await end(client, answer, COMMIT)).code == 0
            (final,) = await client.drain("T", queue_id=2)
            assert (final.body, final.flag, final.sys_flag & 0xC) == (b"H1", 7, 8)
            assert final.prepared_offset == waiting.phy_offset
            assert (final.born_ms, final.born_host) == (waiting.born_ms, waiting.born_host)
            kept = properties_of(final)
            assert kept == {key: shown[key] for key in shown if not key.startswith("REAL_")}
            assert (kept["PGROUP"], kept["TAGS"], kept["TRAN_MSG"]) == ("PG", "a", "true")
            (op,) = await client.drain(OP)
            assert (op.body, properties_of(op)) == (b"0,", {"TAGS": "d"})

    run(scenario())


def test_a_rolled_back_message_is_never_seen_and_never_asked_about() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            answer = await half(client)
            assert (await end(client, answer, ROLLBACK)).code == 0
            await asyncio.sleep(0.01)
            await round_of(harness)
            assert client.asked.empty()
            assert harness.broker.store.max_offset("T", 0) == 0
            assert offsets_of(harness) == (1, 1)

    run(scenario())


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"producer_group": "OTHER"}, ResponseCode.SYSTEM_ERROR),
        ({"tran_state_table_offset": 5}, ResponseCode.SYSTEM_ERROR),
        ({"commit_log_offset": 1 << 40}, ResponseCode.SYSTEM_ERROR),
        ({"commit_log_offset": -1}, ResponseCode.SYSTEM_ERROR),
        ({"commit_log_offset": 0}, ResponseCode.SYSTEM_ERROR),
        ({"commit_log_offset": 3}, ResponseCode.SYSTEM_ERROR),
    ],
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_that_names_another_record_ends_nothing(
    more: dict[str, Any], code: int, how: int
) -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await client.send("T", b"plain", queue_id=1, properties={"PGROUP": "PG"})
            answer = await half(client)
            assert (await end(client, answer, how, **more)).code == code
            assert await client.drain("T") == await client.drain(OP) == []

    run(scenario())


def test_a_second_end_puts_no_second_message() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            answer = await half(client)
            for more in ({}, {"from_transaction_check": True}, {}):
                assert (await end(client, answer, COMMIT, **more)).code == 0
            assert (await end(client, answer, ROLLBACK)).code == 0
            again = await half(client, key="H2")
            assert (await end(client, again, COMMIT)).code == 0
            assert [record.body for record in await client.drain("T")] == [b"H1", b"H2"]

    run(scenario())


def test_an_end_that_is_unknown_leaves_the_message_as_it_is() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            answer = await half(client)
            assert (await end(client, answer, UNKNOWN)).code == 0
            for how in (4, 5, 99):
                assert (await end(client, answer, how)).code == ResponseCode.SYSTEM_ERROR
            assert await client.drain("T") == await client.drain(OP) == []
            assert (await end(client, answer, COMMIT)).code == 0

    run(scenario())


def test_an_end_after_the_time_it_asked_for_is_refused_unless_it_was_asked() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            extra = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}
            answer = await half(client, properties=extra, born_timestamp=now_ms() - 1_500)
            for how in (COMMIT, ROLLBACK):
                late = await end(client, answer, how)
                assert late.code == ResponseCode.ILLEGAL_OPERATION
            assert (await end(client, answer, COMMIT, from_transaction_check=True)).code == 0

    run(scenario())


def test_a_committed_message_may_be_delayed() -> None:
    async def scenario() -> None:
        async with running(**SELDOM, message_delay_level="1s") as harness:
            client = await harness.client()
            answer = await half(client, properties={"DELAY": "1"})
            assert harness.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 0
            assert (await end(client, answer, COMMIT)).code == 0
            assert (await client.pull("T")).code == ResponseCode.PULL_NOT_FOUND
            found = await client.pull("T", sys_flag=6, suspend_timeout_ms=5_000)
            (final,) = stored.iterate(found.body)
            assert (final.body, final.sys_flag & 0xC) == (b"H1", 8)

    run(scenario())


def test_a_broker_may_refuse_transactions() -> None:
    async def scenario() -> None:
        async with running(reject_transaction_message=True) as harness:
            client = await harness.client()
            answer = await client.send("T", properties={"TRAN_MSG": "true"}, sys_flag=4)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert await client.drain(HALF) == []

    run(scenario())


@pytest.mark.parametrize(
    "more",
    [
        {"sys_flag": 4},
        {"sys_flag": 12},
        {"properties": {"TRAN_MSG": "true", "x": "y" * 32_600}},
    ],
)
def test_a_half_message_that_could_never_be_delivered_is_refused(more: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            assert (await client.send("T", **more)).code == ResponseCode.MESSAGE_ILLEGAL

    run(scenario())


def test_a_message_sent_back_by_its_consumer_is_no_half_message() -> None:
    async def scenario() -> None:
        async with running(message_delay_level="1s") as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            extra = {"TRAN_MSG": "true", "DELAY": "1"}
            answer = await client.send("%RETRY%CG", properties=extra, reconsume_times=1)
            assert answer.code == 0
            assert harness.broker.store.max_offset(HALF, 0) == 0
            assert harness.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1

    run(scenario())


def test_an_end_whose_message_cannot_be_stored_is_no_end() -> None:
    async def scenario() -> None:
        full = replace(SMALL_STORE, append_crc=False)
        async with running(full, **SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            answer = await half(client)
            harness.broker.store._parts.retention.is_disk_full = True
            assert (await end(client, answer, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            await round_of(harness)
            assert client.asked.empty()
            harness.broker.store._parts.retention.is_disk_full = False
            await round_of(harness)
            await answer_question(client, COMMIT)
            assert len(await client.drain("T")) == 1

    run(scenario())
