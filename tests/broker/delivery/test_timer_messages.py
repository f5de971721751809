"""Messages at a time of their own: never early, soon when due, none lost or repeated, recalled."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker.commands import Client, Harness, properties_of, received, records
from broker.delivery.timer_commands import TIMERS, bodies, timed
from broker.delivery.transaction_commands import COMMIT, end, half
from broker.harness import new_broker, new_disk, now_ms, run, running
from cometmq.testing.sim_files import SimFiles
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire import recall_handle
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import message_batch, properties


async def recall(client: Client, handle: str, topic: str = "T", **more: str) -> Any:
    fields = {"topic": topic, "recallHandle": handle, "producerGroup": "PG", **more}
    return await client.call(RequestCode.RECALL_MESSAGE, **fields)


@pytest.mark.parametrize("precision_ms", [1_000, 100])
@pytest.mark.parametrize("key", ["DELAY_SEC", "DELAY_MS", "DELIVER_MS"])
def test_a_timer_message_comes_when_due_and_never_early(key: str, precision_ms: int) -> None:
    async def scenario() -> None:
        store = replace(TIMERS, timer_precision_ms=precision_ms)
        async with running(store) as harness:
            client = await harness.client()
            for number in range(7):
                began = now_ms()
                wait_ms = 2_000 if key == "DELAY_SEC" else 1_234 + 111 * number
                value = {"DELAY_SEC": 2, "DELAY_MS": wait_ms, "DELIVER_MS": began + wait_ms}[key]
                answer = await timed(client, b"%d" % number, **{key: value}, queue_id=0, flag=5)
                assert answer.ext["queueId"] == "0"
                *_, later = await received(client, number + 1)
                late_ms = later.store_ms - began - wait_ms
                assert 0 <= late_ms <= precision_ms + 20
                assert later.flag == 5
                shown = properties_of(later)
                assert (shown["REAL_TOPIC"], shown["REAL_QID"]) == ("T", "0")
                assert int(shown["TIMER_OUT_MS"]) % precision_ms == 0
                assert int(shown["TIMER_DEQUEUE_MS"]) == later.store_ms
                await asyncio.sleep(0.317)

    run(scenario())


def test_a_time_that_is_past_is_delivered_at_once() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            answer = await timed(client, DELIVER_MS=now_ms() - 5)
            assert "recallHandle" not in answer.ext
            assert bodies(await client.drain("T")) == [b"later"]

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"DELAY_SEC": "soon"}, "TIMER_DELAY_SEC is 'soon', which is no whole number"),
        ({"DELIVER_MS": "9" * 19}, "which is no whole number"),
        ({"DELAY_MS": 259_201_000}, "timerMaxDelaySec allows 259200 s"),
        ({"DELAY_SEC": 1 << 62}, "timerMaxDelaySec allows"),
    ],
)
def test_a_time_that_is_malformed_or_too_far_is_refused(asked: dict[str, Any], said: str) -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            answer = await timed(client, ok=False, **asked)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert said in answer.remark

    run(scenario())


def test_switched_off_it_refuses_new_ones_and_delivers_what_waits() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            await timed(await harness.client(), DELAY_SEC=5)
        off = replace(TIMERS, timer_wheel_enable=False)
        async with running(off, disk=disk) as harness:
            client = await harness.client()
            answer = await timed(client, b"no", ok=False, DELAY_SEC=1)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "timerWheelEnable=false" in answer.remark
            assert bodies(await received(client, 1)) == [b"later"]

    run(scenario())


def test_a_delay_level_wins() -> None:
    async def scenario() -> None:
        async with running(TIMERS, message_delay_level="1s") as harness:
            client = await harness.client()
            await timed(client, DELAY_SEC=3_600, properties={"DELAY": "1"})
            (later,) = await received(client, 1)
            assert "TIMER_DELAY_SEC" not in properties_of(later)

    run(scenario())


def test_messages_of_one_moment_come_in_the_order_of_their_sends() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            at = now_ms() + 4_000
            for number in range(300):
                await timed(client, b"%d" % number, DELIVER_MS=at)
            assert bodies(await received(client, 300)) == [b"%d" % each for each in range(300)]

    run(scenario())


def test_what_waits_survives_stops_and_comes_once() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            for number in range(200):
                await timed(client, b"%d" % number, DELAY_MS=500 + 100 * number)
            await received(client, 20)
        await asyncio.sleep(5)
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            await received(client, 150)
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            found = await received(client, 200)
            assert sorted(map(int, bodies(found))) == list(range(200))
            await asyncio.sleep(3)
            assert len(await client.drain("T")) == 200
            assert harness.broker.state.timers.waiting == 0

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("crash", ["kill", "power_cut"])
def test_a_crash_loses_none_and_repeats_none(crash: str, seed: int) -> None:
    async def scenario() -> None:
        rng = Random(seed)
        disk = SimFiles(rng, LoopClock())
        store = replace(TIMERS, flush_disk_type="SYNC_FLUSH", timer_roll_window_slot=4)
        sent = 0
        for _ in range(3):
            broker = new_broker(store, disk=disk)
            await broker.start()
            client = await Harness(broker).client()
            for _ in range(rng.randrange(40)):
                await timed(client, b"%d" % sent, DELAY_MS=rng.randrange(1, 9_000))
                sent += 1
            await asyncio.sleep(rng.random() * 6)
            getattr(disk, crash)()
        async with running(store, disk=disk) as harness:
            client = await harness.client()
            await asyncio.sleep(15)
            found = await client.drain("T")
            assert sorted(map(int, bodies(found))) == list(range(sent))

    run(scenario())


def test_a_message_far_ahead_is_stored_again_on_its_way() -> None:
    async def scenario() -> None:
        async with running(replace(TIMERS, timer_roll_window_slot=10)) as harness:
            client = await harness.client()
            began = now_ms()
            await timed(client, DELAY_SEC=58)
            (later,) = await received(client, 1)
            assert 58_000 <= later.store_ms - began <= 59_020
            assert int(properties_of(later)["TIMER_ROLL_TIMES"]) >= 5

    run(scenario())


def test_a_recalled_message_never_comes() -> None:
    async def scenario() -> None:
        async with running(TIMERS, recall_message_enable=True) as harness:
            client = await harness.client()
            at = now_ms() + 5_000
            first = await timed(client, b"first", DELIVER_MS=at)
            await timed(client, b"second", DELIVER_MS=at)
            handle = recall_handle.decode(first.ext["recallHandle"])
            assert (handle.topic, handle.broker_name, handle.uniq_key) == ("T", "b0", "first")
            answer = await recall(client, first.ext["recallHandle"])
            assert answer.code == 0
            assert answer.ext["msgId"] == "first"
            await asyncio.sleep(8)
            assert bodies(await client.drain("T")) == [b"second"]
            assert harness.broker.state.timer_messages.recalled == 1
            assert (await recall(client, first.ext["recallHandle"])).code == (
                ResponseCode.ILLEGAL_OPERATION
            )

    run(scenario())


def test_a_recall_finds_a_message_that_was_stored_again_on_its_way() -> None:
    async def scenario() -> None:
        store = replace(TIMERS, timer_roll_window_slot=10)
        async with running(store, recall_message_enable=True) as harness:
            client = await harness.client()
            sent = await timed(client, DELAY_SEC=58)
            await asyncio.sleep(33)
            assert (await recall(client, sent.ext["recallHandle"])).code == 0
            await asyncio.sleep(60)
            assert await client.drain("T") == []
            assert harness.broker.state.timers.waiting == 0

    run(scenario())


def test_a_recall_that_cannot_be_is_refused() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            sent = await timed(client, DELAY_SEC=5)
            handle = sent.ext["recallHandle"]
            answer = await recall(client, handle)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "recallMessageEnable" in answer.remark
        async with running(TIMERS, recall_message_enable=True) as harness:
            client = await harness.client()
            assert (await recall(client, handle)).code == ResponseCode.TOPIC_NOT_EXIST
            await client.send("T", b"x")
            await client.send("U", b"x")
            for bad in ("", "!!", "djEgeA=="):
                assert (await recall(client, bad)).code in (
                    ResponseCode.ILLEGAL_OPERATION,
                    ResponseCode.SYSTEM_ERROR,
                )
            assert "of the topic T" in (await recall(client, handle, "U")).remark
            other = recall_handle.decode(handle)._replace(broker_name="b9")
            assert "b9" in (await recall(client, recall_handle.encode(other))).remark

    run(scenario())


def test_a_committed_transaction_comes_at_its_time() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            answer = await half(client, "K", properties={"TIMER_DELAY_SEC": "3"})
            assert answer.code == 0
            await asyncio.sleep(1)
            committed = now_ms()
            await end(client, answer, COMMIT)
            (later,) = await received(client, 1)
            assert 3_000 <= later.store_ms - committed <= 4_020
            properties_given = {"TIMER_DELAY_SEC": "x", "TRAN_MSG": "true"}
            bad = await client.send("T", b"x", properties=properties_given, sys_flag=4)
            assert bad.code == ResponseCode.MESSAGE_ILLEGAL

    run(scenario())


def test_a_batch_with_a_timer_message_is_refused() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            raw = properties.encode({"UNIQ_KEY": "K", "TIMER_DELAY_SEC": "3"})
            body = message_batch.encode([message_batch.BatchItem(0, b"x", raw)])
            answer = await client.send("T", body, batch=True)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "send that one by itself" in answer.remark

    run(scenario())


def test_a_moment_takes_no_more_messages_than_its_bound() -> None:
    async def scenario() -> None:
        async with running(replace(TIMERS, timer_congest_num_each_slot=3)) as harness:
            client = await harness.client()
            at = now_ms() + 10_000
            for number in range(3):
                await timed(client, b"%d" % number, DELIVER_MS=at)
                await asyncio.sleep(0.1)
            answer = await timed(client, b"3", ok=False, DELIVER_MS=at)
            assert "timerCongestNumEachSlot" in answer.remark
            await timed(client, b"4", DELIVER_MS=at + 2_000)

    run(scenario())


def test_a_store_without_timer_messages_gets_no_files_of_them() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            await client.send("T", b"x")
            await asyncio.sleep(30)
            assert records(await client.pull("T"))
        root = harness.broker.store.commit_log_directory.parent
        assert not {"timerwheel", "timerlog"} & set(disk.names(root))
        assert "timercheck" not in disk.names(root / "config")

    run(scenario())


def test_how_many_wait_is_said_by_topic_and_survives_a_restart() -> None:
    async def counts(client: Client) -> dict[str, int]:
        answer = await client.call(RequestCode.GET_TIMER_METRICS)
        table = json.loads(answer.body)
        assert set(table["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
        return {topic: one["count"] for topic, one in table["timingCount"].items()}

    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk, recall_message_enable=True) as harness:
            client = await harness.client()
            assert await counts(client) == {}
            answers = [await timed(client, b"%d" % n, DELAY_SEC=60 + n) for n in range(3)]
            await asyncio.sleep(1)
            assert await counts(client) == {"T": 3}
            await recall(client, answers[0].ext["recallHandle"])
            await asyncio.sleep(3)
            assert await counts(client) == {"T": 2}
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            assert await counts(client) == {"T": 2}
            await received(client, 2)
            await asyncio.sleep(1)
            assert await counts(client) == {"T": 0}

    run(scenario())
