"""Delayed messages: never early, delivered when due, none lost, their time kept by a new table."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.commands import Client, Harness, properties_of, received, records
from broker.harness import CONFIG, SMALL_STORE, new_disk, now_ms, run, running, stored_table
from cometmq.store.message_draft import MessageDraft
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

SHORT = {"message_delay_level": "1s 2s 1h"}


async def delayed(client: Client, level: int, body: bytes = b"later", **more: Any) -> Any:
    extra = {"DELAY": str(level), "UNIQ_KEY": body.decode(), **more.pop("properties", {})}
    answer = await client.send("T", body, properties=extra, **more)
    assert answer.code == 0, answer
    return answer


async def until_delivered(harness: Harness, count: int) -> None:
    """Wait until exactly so many have come; another one a moment later would be one too many."""
    delayed_messages = harness.broker.state.delayed_messages
    while delayed_messages.delivered < count:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.2)
    assert delayed_messages.delivered == count


def test_a_delayed_message_comes_when_due_and_never_early() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.send("T", b"now")
            answer = await delayed(client, 1, queue_id=0, flag=5)
            assert answer.ext["queueId"] == "0"
            now, later = await received(client, 2)
            assert (now.body, later.body) == (b"now", b"later")
            assert 1_000 <= later.store_ms - now.store_ms < 5_000  # a busy machine is late
            assert later.flag == 5
            shown = properties_of(later)
            assert (shown["REAL_TOPIC"], shown["REAL_QID"], shown["DELAY"]) == ("T", "0", "1")
            assert harness.broker.state.delayed_messages.offsets[1] == 1

    run(scenario())


def test_a_delay_begins_when_its_message_is_put_however_long_the_iteration_lasts_already() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.send("T", b"now")
            store, loop = harness.broker.store, asyncio.get_running_loop()
            store.put(MessageDraft("T", 0, b"before"))
            loop.pass_time(0.05)  # type: ignore[attr-defined]
            sent_ms = now_ms()
            late = MessageDraft("T", 0, b"later", properties.encode({"DELAY": "1"}))
            harness.broker.state.delayed_messages.schedule(late)
            store.put(late)
            *_, later = await received(client, 3)
            assert later.store_ms - sent_ms >= 1_000

    run(scenario())


def test_delay_levels_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await delayed(client, 2, b"two")
            await delayed(client, 1, b"one")
            assert [record.body for record in await received(client, 2)] == [b"one", b"two"]

    run(scenario())


def test_a_level_above_the_table_is_taken_for_the_last_one() -> None:
    async def scenario() -> None:
        async with running(message_delay_level="1h 1s") as harness:
            client = await harness.client()
            await delayed(client, 99)
            assert (await received(client, 1))[0].body == b"later"

    run(scenario())


def test_a_tag_filters_a_delayed_message_as_any_other() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, properties={"TAGS": "A"})
            await received(client, 1)
            assert len(records(await client.pull("T", subscription="A"))) == 1
            assert records(await client.pull("T", subscription="B")) == []

    run(scenario())


def test_what_waits_survives_a_stop_and_comes_once() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, b"first")
            await received(client, 1)
            for number in range(20):
                await delayed(client, 1, b"%d" % number)
        file = stored_table(disk, "delayOffset.json")
        assert file["offsetTable"] == {"1": 1}
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            bodies = [record.body for record in await received(client, 21)]
            assert bodies == [b"first", *(b"%d" % number for number in range(20))]
            assert harness.broker.state.delayed_messages.delivered == 20

    run(scenario())


def test_a_changed_table_lets_waiting_messages_keep_their_time() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, message_delay_level="1h 1h 1s") as harness:
            client = await harness.client()
            await delayed(client, 1, b"long")
            await delayed(client, 3, b"short")
        async with running(disk=disk, message_delay_level="1s") as harness:
            client = await harness.client()
            assert [record.body for record in await received(client, 1)] == [b"short"]
            delayed_messages = harness.broker.state.delayed_messages
            assert delayed_messages.deliver_due() > 0
            assert delayed_messages.offsets == {3: 1}
            _, _, due_ms = harness.broker.store.entry("SCHEDULE_TOPIC_XXXX", 0, 0) or (0, 0, 0)
            assert 3_500_000 < due_ms - now_ms() <= 3_600_000

    run(scenario())


def test_a_shortened_delay_does_not_wait_for_older_messages_of_its_level() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, message_delay_level="1h") as harness:
            client = await harness.client()
            await delayed(client, 1, b"hour")
        for name in (b"a", b"b"):
            async with running(disk=disk, message_delay_level="1s") as harness:
                client = await harness.client()
                await delayed(client, 1, name)
                assert [record.body for record in await received(client, 1 + (name == b"b"))]
                delayed_messages = harness.broker.state.delayed_messages
                assert (delayed_messages.offsets, delayed_messages.delivered) == ({}, 1)
            places = stored_table(disk, "delayOffset.json")
            assert places["offsetTable"] == {}
            assert places["cometmqRuns"] == {"1": [[0, 0], [1, 2 + (name == b"b")]]}
        async with running(disk=disk, message_delay_level="2s") as harness:
            client = await harness.client()
            await delayed(client, 1, b"c")
            found = [record.body for record in await received(client, 3)]
            assert found == [b"a", b"b", b"c"]
            entry = harness.broker.store.entry("SCHEDULE_TOPIC_XXXX", 0, 0)
            assert entry
            assert entry[2] - now_ms() > 3_500_000, "the hour goes on"

    run(scenario())


def test_messages_that_several_delay_tables_left_are_found_as_runs_of_one_delay() -> None:
    async def scenario() -> None:
        disk = new_disk()
        for number, table in enumerate(("1h", "30m", "1s")):
            async with running(disk=disk, message_delay_level=table) as harness:
                client = await harness.client()
                for _ in range(2 + number):
                    await delayed(client, 1, b"%d" % number)
                if table == "1s":
                    assert [record.body for record in await received(client, 4)] == [b"2"] * 4
        disk.delete(CONFIG / "delayOffset.json")
        disk.delete(CONFIG / "delayOffset.json.bak")
        async with running(disk=disk, message_delay_level="1s") as harness:
            client = await harness.client()
            await delayed(client, 1, b"new")
            bodies = [record.body for record in await received(client, 5)]
            assert bodies == [b"2"] * 4 + [b"new"]
            assert harness.broker.state.delayed_messages.skipped == 4

    run(scenario())


def test_delivery_offsets_that_did_not_change_are_not_written_again() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, b"first")
            await received(client, 1)
            delayed_messages = harness.broker.state.delayed_messages
            await delayed_messages.save_in_thread()
            assert stored_table(disk, "delayOffset.json")["offsetTable"]["1"] == 1
            version = delayed_messages.version
            await delayed_messages.save_in_thread()
            assert delayed_messages.version == version

    run(scenario())


def test_what_was_delivered_but_not_noted_is_not_delivered_again() -> None:
    async def scenario() -> None:
        disk = new_disk()
        file = CONFIG / "delayOffset.json"
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, b"first")
            await received(client, 1)
            await harness.broker.state.delayed_messages.save_in_thread()
            noted = disk.read(file)
            for number in range(20):
                await delayed(client, 1 + number % 2, b"%d" % number, queue_id=number % 3)
            same = {"UNIQ_KEY": "SAME"}
            await delayed(client, 1, b"same", properties=same)
            await delayed(client, 3, b"same", properties=same)
            await until_delivered(harness, 22)
        disk.write(file, noted)  # as after a kill
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            delayed_messages = harness.broker.state.delayed_messages
            assert (delayed_messages.skipped, delayed_messages.offsets) == (21, {1: 12, 2: 10})
            await delayed(client, 1, b"again")
            await delayed(client, 1, b"9", queue_id=0)
            await until_delivered(harness, 2)
            total = [len(await client.drain("T", queue_id=queue_id)) for queue_id in range(3)]
            assert sum(total) == 24

    run(scenario())


def test_a_lowered_limit_for_bodies_keeps_back_nothing_that_was_taken() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, b"long" * 1000)
            await delayed(client, 1, b"short")
        lower = replace(SMALL_STORE, max_message_bytes=1000)
        async with running(lower, disk=disk, **SHORT) as harness:
            client = await harness.client()
            bodies = [record.body for record in await received(client, 2)]
            assert bodies == [b"long" * 1000, b"short"]

    run(scenario())


def test_what_may_not_be_delivered_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            raw = properties.encode({"DELAY": "1", "REAL_TOPIC": "t" * 128, "REAL_QID": "0"})
            harness.broker.store.put(MessageDraft("SCHEDULE_TOPIC_XXXX", 0, b"nowhere", raw))
            await delayed(client, 1)
            assert [record.body for record in await received(client, 1)] == [b"later"]
            assert [line.levelname for line in caplog.records] == ["ERROR"]

    run(scenario())


def test_properties_that_fill_a_record_without_checksum_are_delivered_with_one() -> None:
    async def scenario() -> None:
        disk = new_disk()
        plain = replace(SMALL_STORE, append_crc=False)
        async with running(plain, disk=disk, **SHORT) as harness:
            client = await harness.client()
            await delayed(client, 1, b"full", properties={"x": "y"})
            room = 32_767 - len(record_properties(harness, 0))
            await delayed(client, 1, b"full", properties={"x": "y" * (1 + room)})
            assert len(record_properties(harness, 1)) == 32_767
        async with running(SMALL_STORE, disk=disk, **SHORT) as harness:
            client = await harness.client()
            _, full = await received(client, 2)
            assert properties_of(full)["x"] == "y" * (1 + room)

    run(scenario())


def record_properties(harness: Harness, offset: int) -> bytes:
    """The properties of a message that waits on level 1, as they are stored."""
    store = harness.broker.store
    entry = store.entry("SCHEDULE_TOPIC_XXXX", 0, offset)
    assert entry
    return stored.decode(store.record_at(entry[0]) or b"").properties


def test_many_due_at_once_all_come_in_order() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await asyncio.gather(*(delayed(client, 1, b"%04d" % n) for n in range(500)))
            found = await received(client, 500)
            assert [record.body for record in found] == [b"%04d" % n for n in range(500)]

    run(scenario())


def test_among_many_sends_none_is_early_and_none_later_than_a_second() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            for first in range(0, 2_000, 100):
                keys = [b"%d" % number for number in range(first, first + 100)]
                await asyncio.gather(*(delayed(client, 1, key) for key in keys))
            late = [
                record.store_ms - entry[2]
                for number, record in enumerate(await received(client, 2_000))
                if (entry := harness.broker.store.entry("SCHEDULE_TOPIC_XXXX", 0, number))
            ]
            assert len(late) == 2_000
            assert min(late) >= 0
            assert sorted(late)[-2] <= 1_000

    run(scenario())


@pytest.mark.parametrize("level", ["-1", "0"])
def test_a_level_of_zero_or_less_delays_nothing(level: str) -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.send("T", properties={"DELAY": level})
            assert (await client.pull("T")).code == 0

    run(scenario())


@pytest.mark.parametrize("level", ["x", "1.5", "9" * 10, "9" * 30])
def test_a_level_that_is_no_number_is_refused(level: str) -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            answer = await client.send("T", properties={"DELAY": level})
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())
