"""Timer messages that nobody should send, and failures in the middle of a slot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from broker.commands import received
from broker.delivery.timer_commands import TIMERS, bodies, timed
from broker.harness import now_ms, run, running
from cometmq.model.topic import TIMER_TOPIC
from cometmq.store.message_draft import MessageDraft
from cometmq.testing.sim_files import SimFiles
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import properties

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


def test_clients_may_not_send_to_the_timer_topic() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            aimed = {"TIMER_OUT_MS": "1", "REAL_TOPIC": "Secret", "REAL_QID": "0"}
            answer = await client.send(TIMER_TOPIC, b"x", properties=aimed)
            assert answer.code == ResponseCode.NO_PERMISSION

    run(scenario())


@pytest.mark.parametrize("rolls", ["x", "9" * 5_000])
def test_a_count_of_rolls_that_a_client_made_up_holds_nobody_up(rolls: str) -> None:
    async def scenario() -> None:
        async with running(replace(TIMERS, timer_roll_window_slot=10)) as harness:
            client = await harness.client()
            await timed(client, b"far", DELAY_SEC=15, properties={"TIMER_ROLL_TIMES": rolls})
            await timed(client, b"near", DELAY_SEC=6)
            assert sorted(bodies(await received(client, 2))) == [b"far", b"near"]

    run(scenario())


@pytest.mark.parametrize(
    "aimed",
    [
        {"TIMER_OUT_MS": "7", "REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"},
        {"TIMER_OUT_MS": "9" * 40, "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "-9" + "9" * 30, "REAL_TOPIC": "T", "REAL_QID": "99999999999"},
        {"TIMER_OUT_MS": "soon", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_DEL_UNIQKEY": "near"},
    ],
)
def test_what_another_broker_left_in_the_timer_topic_holds_nobody_up(
    aimed: dict[str, str],
) -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            await timed(client, b"first", DELAY_SEC=1)
            raw = properties.encode(aimed)
            store = harness.broker.store
            store.put(MessageDraft(TIMER_TOPIC, 0, b"left", raw, born_ms=1, born_host=HOST))
            await timed(client, b"near", DELAY_SEC=3)
            await received(client, 2)
            await asyncio.sleep(20)
            assert store.max_offset(TIMER_TOPIC, 0) == 3
            assert b"near" in bodies(await client.drain("T"))

    run(scenario())


def test_a_slot_between_two_precisions_is_not_early_and_holds_nobody_up() -> None:
    """Another precision of a master, or of the store before it changed hands, left them."""

    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            await timed(client, b"first", DELAY_SEC=1)
            out_ms = now_ms() // 1_000 * 1_000 + 3_700
            aimed = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0"}
            raw = properties.encode(aimed)
            store = harness.broker.store
            store.put(MessageDraft(TIMER_TOPIC, 0, b"between", raw, born_ms=1, born_host=HOST))
            await timed(client, b"later", DELAY_SEC=6)
            found = {record.body: record.store_ms for record in await received(client, 3)}
            assert out_ms <= found[b"between"] <= out_ms + 1_020

    run(scenario())


def test_a_recall_takes_nothing_from_another_topic() -> None:
    async def scenario() -> None:
        async with running(TIMERS) as harness:
            client = await harness.client()
            at = now_ms() + 4_000
            await timed(client, b"mine", DELIVER_MS=at)
            recall = {
                "TIMER_DELIVER_MS": str(at), "TIMER_DEL_UNIQKEY": "mine", "UNIQ_KEY": "mine"
            }  # fmt: skip
            assert (await client.send("Other", b"0", properties=recall)).code == 0
            assert bodies(await received(client, 1)) == [b"mine"]

    run(scenario())


@pytest.mark.parametrize("count", [63, 64, 65, 128])
def test_a_disk_that_fails_amid_a_slot_loses_none(count: int) -> None:
    async def scenario() -> None:
        disk = SimFiles(Random(1), LoopClock())
        store = replace(TIMERS, flush_disk_type="SYNC_FLUSH")
        async with running(store, disk=disk) as harness:
            client = await harness.client()
            at = now_ms() + 4_000
            for number in range(count):
                await timed(client, b"%d" % number, DELIVER_MS=at)
            await asyncio.sleep(3.5)
            timers = harness.broker.state.timer_messages
            while not timers.delivered:
                await asyncio.sleep(0.0002)
            disk.room = 0
            await asyncio.sleep(10)
            disk.room = None
            found = bodies(await received(client, count))
            assert set(map(int, found)) == set(range(count))

    run(scenario())
