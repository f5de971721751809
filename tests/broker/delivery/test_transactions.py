"""Transactions over real connections: half, committed, rolled back, asked about, discarded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import Client, Harness, properties_of
from broker.harness import SMALL_STORE, STORE, new_disk, now_ms, run, running, stored_table
from cometmq.model.subscription import HeartbeatData
from cometmq.store.results import MessageDraft
from cometmq.wire import log_record as stored
from cometmq.wire import message_id, properties
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

if TYPE_CHECKING:
    from cometmq.wire.command import Command

HALF, OP, LOST = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = {"transaction_timeout_ms": 100, "transaction_check_interval_ms": 100}
SELDOM = {"transaction_timeout_ms": 0, "transaction_check_interval_ms": 3_600_000}


async def half(client: Client, key: str = "H1", topic: str = "T", **more: Any) -> Command:
    """Send a half message and give the broker's answer."""
    extra = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key, **more.pop("properties", {})}
    given = {"sys_flag": 4, "born_timestamp": now_ms(), **more}
    answer = await client.send(topic, key.encode(), properties=extra, **given)
    assert answer.code == 0, answer
    return answer


def end_header(answer: Command, how: int, **more: Any) -> EndTransactionRequestHeader:
    """The end of the half message that was answered so."""
    _, phy_offset = message_id.parse_offset_id(answer.ext["msgId"])
    fields: dict[str, Any] = {
        "producer_group": "PG",
        "tran_state_table_offset": int(answer.ext["queueOffset"]),
        "commit_log_offset": phy_offset,
        "commit_or_rollback": how,
        "msg_id": "H1",
    }
    return EndTransactionRequestHeader(**{**fields, **more})


async def produce(client: Client, client_id: str = "p1") -> None:
    """Join the producer group."""
    beat = HeartbeatData(client_id=client_id, producer_groups=("PG",))
    assert (await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))).code == 0


async def end(client: Client, answer: Command, how: int, **more: Any) -> Command:
    return await client.call(RequestCode.END_TRANSACTION, end_header(answer, how, **more))


async def answer_question(client: Client, how: int) -> CheckTransactionStateRequestHeader:
    """Wait for the broker's question and end what it is about."""
    asked = await client.asked_next()
    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
    assert asked.is_oneway
    header = CheckTransactionStateRequestHeader.decode(asked.ext)
    reply = EndTransactionRequestHeader(
        producer_group="PG",
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=how,
        from_transaction_check=True,
        msg_id=header.msg_id or "",
    )
    assert (await client.call(RequestCode.END_TRANSACTION, reply)).code == 0
    return header


async def round_of(harness: Harness) -> None:
    """Let the broker look at its half messages now, and wait until it has."""
    await harness.broker.state.check_back.check()
    await asyncio.sleep(0.05)


def offsets_of(harness: Harness) -> tuple[int, int]:
    committed = harness.broker.state.offsets.committed
    return (
        committed("CID_RMQ_SYS_TRANS", HALF, 0),
        committed("CID_RMQ_SYS_TRANS", OP, 0),
    )


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
def test_an_end_that_names_something_else_ends_nothing(
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


def test_its_producer_is_asked_and_the_answer_ends_it() -> None:
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
            told = stored.decode(asked.body)
            assert (told.topic, told.queue_id, told.body, told.flag) == ("T", 3, b"H1", 9)
            assert (told.queue_offset, told.phy_offset) == (1, header.commit_log_offset)
            assert properties_of(told)["TRANSACTION_CHECK_TIMES"] == "1"
            reply = end_header(answer, COMMIT, from_transaction_check=True)
            reply.tran_state_table_offset, reply.commit_log_offset = 1, header.commit_log_offset
            assert (await client.call(RequestCode.END_TRANSACTION, reply)).code == 0
            (final,) = await client.drain("T", queue_id=3)
            assert (final.body, final.flag, final.prepared_offset) == (b"H1", 9, phy_offset)
            await asyncio.sleep(0.5)
            assert client.asked.empty()
            assert offsets_of(harness) == (2, 1)

    run(scenario())


def test_a_young_message_is_not_asked_about() -> None:
    async def scenario() -> None:
        async with running(**{**SELDOM, "transaction_timeout_ms": 60_000}) as harness:
            client = await harness.client()
            await produce(client)
            await half(client)
            await round_of(harness)
            assert client.asked.empty()
            assert len(await client.drain(HALF)) == 1

    run(scenario())


def test_after_the_last_question_it_is_discarded_where_it_can_be_found() -> None:
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


def test_a_new_age_of_the_log_is_that_of_half_messages_at_once() -> None:
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
def test_what_is_no_half_message_is_not_put_back(key: str) -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            await client.send("T")
            header = ResumeCheckHalfMessageRequestHeader(msg_id=key)
            answer = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert harness.broker.store.max_offset(HALF, 0) == 0

    run(scenario())


def test_one_that_waits_longer_holds_up_no_other() -> None:
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


def test_a_late_end_of_the_first_place_ends_the_copy_as_well() -> None:
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


def test_questions_go_to_each_producer_of_the_group_in_turn() -> None:
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


def test_without_a_producer_it_waits_and_is_counted() -> None:
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


def test_a_restart_goes_on_where_the_rounds_had_come() -> None:
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
def test_what_could_never_come_out_is_refused(more: dict[str, Any]) -> None:
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


def test_a_thousand_open_ones_are_all_asked_about_in_one_round() -> None:
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
