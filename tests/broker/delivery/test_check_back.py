"""Half messages without an end: their producers are asked, in rounds, and given up at last."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from broker.commands import properties_of
from broker.delivery.transaction_commands import (
    COMMIT,
    HALF,
    LOST,
    OP,
    QUICK,
    ROLLBACK,
    SELDOM,
    answer_question,
    end,
    end_header,
    half,
    offsets_of,
    produce,
    round_of,
)
from broker.harness import SMALL_STORE, STORE, new_disk, now_ms, run, running, stored_table
from cometmq.store.message_draft import MessageDraft
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id, properties


def test_the_producer_of_a_half_message_is_asked_and_its_answer_ends_it() -> None:
    async def scenario() -> None:
        async with running(**QUICK) as harness:
            client = await harness.client()
            await produce(client)
            answer = await half(client, queue_id=3, flag=9, properties={"KEYS": "k"})
            asked = await client.asked_next()
            header = CheckTransactionStateRequestHeader.decode(asked.ext)
            assert (header.topic, header.broker_name) == (HALF, "b0")
            assert header.msg_id == header.transaction_id == "H1"
            assert header.tran_state_table_offset == 1
            _, phy_offset = message_id.parse_offset_id(header.offset_msg_id or "")
            assert phy_offset == header.commit_log_offset
            record = stored.decode(asked.body)
            assert (record.topic, record.queue_id, record.body, record.flag) == ("T", 3, b"H1", 9)
            assert (record.queue_offset, record.phy_offset) == (1, header.commit_log_offset)
            assert properties_of(record)["TRANSACTION_CHECK_TIMES"] == "1"
            reply = end_header(answer, COMMIT, from_transaction_check=True)
            reply.tran_state_table_offset, reply.commit_log_offset = 1, header.commit_log_offset
            assert (await client.call(RequestCode.END_TRANSACTION, reply)).code == 0
            (final,) = await client.drain("T", queue_id=3)
            assert (final.body, final.flag, final.prepared_offset) == (b"H1", 9, phy_offset)
            await asyncio.sleep(0.5)
            assert client.asked.empty()
            assert offsets_of(harness) == (2, 1)

    run(scenario())


def test_a_recent_half_message_is_not_asked_about() -> None:
    async def scenario() -> None:
        async with running(**{**SELDOM, "transaction_timeout_ms": 60_000}) as harness:
            client = await harness.client()
            await produce(client)
            await half(client)
            await round_of(harness)
            assert client.asked.empty()
            assert len(await client.drain(HALF)) == 1

    run(scenario())


def test_after_the_last_check_back_a_half_message_goes_to_the_topic_of_discarded_ones() -> None:
    async def scenario() -> None:
        async with running(**SELDOM, transaction_check_max=2) as harness:
            client = await harness.client()
            await produce(client)
            await half(client)
            for _ in range(4):
                await asyncio.sleep(0.002)
                await round_of(harness)
            times = [properties_of(record).get("TRANSACTION_CHECK_TIMES") for record in
                     await client.drain(HALF)]  # fmt: skip
            assert times == [None, "1", "2"]
            assert client.asked.qsize() == 2
            (lost,) = await client.drain(LOST)
            assert (lost.body, properties_of(lost)["REAL_TOPIC"]) == (b"H1", "T")
            assert harness.broker.state.topics.get(LOST)
            header = ResumeCheckHalfMessageRequestHeader(
                msg_id=message_id.offset_id(lost.store_host, lost.phy_offset)
            )
            answer = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            assert answer.code == 0, answer
            await asyncio.sleep(0.002)
            await round_of(harness)
            for _ in range(2):
                await client.asked_next()
            await answer_question(client, COMMIT)
            assert [record.body for record in await client.drain("T")] == [b"H1"]

    run(scenario())


def test_a_changed_retention_time_applies_to_half_messages_at_once() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await half(client, born_timestamp=now_ms() - 2 * 3_600_000)
            await round_of(harness)
            assert await client.drain(LOST) == []
            change = RequestCode.UPDATE_BROKER_CONFIG
            assert (await client.call(change, None, b"fileReservedTime=1")).code == 0
            await round_of(harness)
            assert [record.body for record in await client.drain(LOST)] == [b"H1"]

    run(scenario())


@pytest.mark.parametrize("key", ["", "0", "00" * 16, "7F00000100002A9F0000010000000000"])
def test_only_half_messages_are_put_back(key: str) -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await client.send("T")
            header = ResumeCheckHalfMessageRequestHeader(msg_id=key)
            answer = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert harness.broker.store.max_offset(HALF, 0) == 0

    run(scenario())


def test_a_half_message_that_waits_longer_delays_no_other() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            long = await half(client, "LONG", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
            await half(client, "PLAIN")
            await asyncio.sleep(0.002)
            await round_of(harness)
            assert (await answer_question(client, COMMIT)).msg_id == "PLAIN"
            copies = await client.drain(HALF)
            assert [record.body for record in copies] == [b"LONG", b"PLAIN", b"LONG", b"PLAIN"]
            assert properties_of(copies[2])["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
            assert "TRANSACTION_CHECK_TIMES" not in properties_of(copies[2])
            assert (await end(client, long, COMMIT)).code == 0, "the first place still ends it"
            await round_of(harness)
            assert len(await client.drain(HALF)) == 4, "no copy more"
            assert offsets_of(harness)[0] == 4

    run(scenario())


def test_a_late_end_that_names_the_first_record_also_ends_its_copy() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            answer = await half(client)
            for _ in range(3):
                await asyncio.sleep(0.002)
                await round_of(harness)
                await client.asked_next()
            assert (await end(client, answer, ROLLBACK)).code == 0
            await round_of(harness)
            assert client.asked.empty()
            assert [op.body for op in await client.drain(OP)] == [b"0,1,2,3,"]

    run(scenario())


def test_check_backs_go_to_each_producer_of_the_group_in_turn() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            clients = [await harness.client() for _ in range(3)]
            for number, client in enumerate(clients):
                await produce(client, client_id=f"c{number}")
            for number in range(9):
                await half(clients[0], f"H{number}")
            await asyncio.sleep(0.002)
            await round_of(harness)
            assert [client.asked.qsize() for client in clients] == [3, 3, 3]

    run(scenario())


def test_without_a_producer_a_half_message_waits_and_is_counted() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await half(client)
            await asyncio.sleep(0.002)
            await round_of(harness)
            await produce(client)
            await round_of(harness)
            await answer_question(client, COMMIT)
            assert len(await client.drain("T")) == 1

    run(scenario())


def test_a_restart_continues_the_rounds_where_they_were() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SELDOM) as harness:
            client = await harness.client()
            for number in range(5):
                answer = await half(client, f"H{number}")
                if number % 2 == 0:
                    assert (await end(client, answer, COMMIT)).code == 0
        async with running(disk=disk, **SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            await round_of(harness)
            assert {(await answer_question(client, COMMIT)).msg_id for _ in range(2)} == {
                "H1",
                "H3",
            }
            await round_of(harness)
            assert client.asked.empty()
            bodies = sorted(record.body for record in await client.drain("T"))
            assert bodies == [b"H0", b"H1", b"H2", b"H3", b"H4"]
        table = stored_table(disk, "consumerOffset.json")
        assert table["offsetTable"][f"{HALF}@CID_RMQ_SYS_TRANS"] == {"0": 7}
        assert table["offsetTable"][f"{OP}@CID_RMQ_SYS_TRANS"] == {"0": 5}

    run(scenario())


def test_ends_that_were_read_before_a_restart_are_known_after_it() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **{**SELDOM, "transaction_timeout_ms": 60_000}) as harness:
            client = await harness.client()
            old = now_ms() - 70_000
            first = await half(client, "OLD", born_timestamp=old)
            await half(client, "OPEN")
            ended = await half(client, "ENDED", born_timestamp=old)
            for answer in (first, ended):
                assert (await end(client, answer, ROLLBACK)).code == 0
            await round_of(harness)
            assert offsets_of(harness) == (1, 1)
        async with running(disk=disk, **SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            await round_of(harness)
            assert (await client.asked_next()).ext["msgId"] == "OPEN"
            assert client.asked.empty()
            assert offsets_of(harness) == (3, 2)

    run(scenario())


def test_op_messages_of_another_broker_are_understood() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            for number in range(4):
                await half(client, f"H{number}")
            raw, store = properties.encode({"TAGS": "d"}), harness.broker.store
            for body in (b"0,2,", b"3"):
                store.put(MessageDraft(OP, 0, body, raw))
            store.put(MessageDraft(OP, 0, b"1,", properties.encode({"TAGS": "x"})))
            await asyncio.sleep(0.01)
            await round_of(harness)
            assert (await client.asked_next()).ext["msgId"] == "H1"
            assert client.asked.empty()
            assert offsets_of(harness) == (4, 3)

    run(scenario())


def test_a_thousand_open_half_messages_are_all_asked_about_in_one_round() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await produce(client)
            await asyncio.gather(*(half(client, f"H{number}") for number in range(1_000)))
            await asyncio.sleep(0.002)
            await round_of(harness)
            asked = {(await client.asked_next()).ext["msgId"] for _ in range(1_000)}
            assert len(asked) == 1_000
            assert offsets_of(harness)[0] == 1_000

    run(scenario())


def test_a_broker_may_stop_in_the_middle_of_a_round(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = new_disk()
        sync = replace(SMALL_STORE, flush_disk_type="SYNC_FLUSH")
        async with running(sync, disk=disk, **SELDOM) as harness:
            client = await harness.client()
            for number in range(20):
                await half(client, f"H{number}")
            await asyncio.sleep(0.002)
            checks = harness.broker.state.check_back
            rounds = asyncio.create_task(checks.check())
            for is_copied in (True, False):  # the last copy is put, and waits for the disk
                while checks._has_copied is not is_copied:
                    await asyncio.sleep(0)
            rounds.cancel()
        assert disk.read(STORE / "abort") is None, "stopped in order"
        assert not [line for line in caplog.records if line.name == "asyncio"]
        async with running(sync, disk=disk, **QUICK) as harness:
            client = await harness.client()
            await produce(client)
            keys = {(await answer_question(client, COMMIT)).msg_id for _ in range(20)}
            assert len(keys) == 20

    run(scenario())
