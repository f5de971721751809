"""The wall clock is set while a broker runs: delays last as long, store times stay in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.harness import new_disk, run, running
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from broker.commands import Client, Harness
    from cometmq.testing.sim_files import SimFiles

HOUR_MS = 3_600_000
SHORT = {"message_delay_level": "1s 2s 2h"}


async def stored_ms(harness: Harness, client: Client) -> int:
    """The store time of a message sent now."""
    answer = await client.send("T", b"x")
    assert answer.code == 0, answer
    return (await client.drain("T"))[-1].store_ms


async def seconds_until(client: Client, level: int) -> float:
    """How long a message of the level takes."""
    before, loop = len(await client.drain("T")), asyncio.get_running_loop()
    answer = await client.send("T", b"later", properties={"DELAY": str(level)})
    assert answer.code == 0, answer
    began = loop.time()
    while len(await client.drain("T")) == before:
        await asyncio.sleep(0.01)
    return loop.time() - began


async def step_for(disk: SimFiles, by_ms: int, seconds: float) -> None:
    """Set the clock, and set it right again after a while."""
    disk.clock.step(by_ms)
    await asyncio.sleep(seconds)
    disk.clock.step(-by_ms)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_is_wrong_for_a_moment_leaves_no_trace(by_ms: int) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            disk.clock.step(by_ms)
            assert 1 <= await seconds_until(client, 1) < 1.3
            during = await stored_ms(harness, client)
            await asyncio.sleep(10)
            disk.clock.step(-by_ms)
            assert 1 <= await seconds_until(client, 1) < 1.3
            after = await stored_ms(harness, client)
            assert abs(after - disk.clock.now_ms()) < 2_000
            assert 10_000 <= after - during < 14_000

    run(scenario())


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_message_that_waits_waits_as_long_when_the_clock_is_wrong_for_a_moment(
    by_ms: int,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            stepping = asyncio.create_task(step_for(disk, by_ms, 30))
            # 2 h are as long as the simulation may take, so this one is only seen to wait
            await client.send("T", b"long", properties={"DELAY": "3"})
            assert 2 <= await seconds_until(client, 2) < 2.6
            await stepping
            assert [each.body for each in await client.drain("T")] == [b"later"]

    run(scenario())


def test_a_clock_that_stays_ahead_is_followed_after_a_minute_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            disk.clock.step(HOUR_MS)
            await asyncio.sleep(30)
            assert await stored_ms(harness, client) < disk.clock.now_ms() - HOUR_MS + 1_000
            await asyncio.sleep(40)
            assert abs(await stored_ms(harness, client) - disk.clock.now_ms()) < 1_000

    run(scenario())
    said = [record.getMessage() for record in caplog.records if "clock" in record.message]
    assert len(said) == 2, said
    assert "went 3600 s ahead" in said[0]
    assert "follow it now" in said[1]


def test_store_times_ahead_of_the_clock_come_back_to_it_by_a_tenth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        disk.clock.step(60_000)  # wrong from the start on
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            before = await stored_ms(harness, client)
            disk.clock.step(-60_000)
            assert 1 <= await seconds_until(client, 1) < 1.5
            await asyncio.sleep(300)
            client = await harness.client()  # idle connections are closed
            ahead = await stored_ms(harness, client) - disk.clock.now_ms()
            assert 25_000 < ahead < 35_000
            await asyncio.sleep(310)
            client = await harness.client()
            after = await stored_ms(harness, client)
            assert abs(after - disk.clock.now_ms()) < 1_100
            assert after > before

    run(scenario())
    said = [record.getMessage() for record in caplog.records if "clock" in record.message]
    assert len(said) == 2, said
    assert "60 s behind" in said[0]
    assert "agree again" in said[1]


def test_a_broker_started_with_a_clock_behind_its_log_delays_as_ever() -> None:
    async def scenario() -> None:
        disk = new_disk()
        disk.clock.step(HOUR_MS)
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            before = await stored_ms(harness, client)
            await client.send("T", b"later", properties={"DELAY": "2"})
        disk.clock.step(-HOUR_MS)
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            await asyncio.sleep(3)
            found = await client.drain("T")
            assert [each.body for each in found] == [b"x", b"later"]
            assert found[1].store_ms >= before + 2_000
            assert 1 <= await seconds_until(client, 1) < 1.5

    run(scenario())


def test_a_clock_set_ahead_for_a_moment_discards_no_half_message_and_no_file() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(
            disk=disk, transaction_check_interval_ms=5_000, transaction_timeout_ms=60_000
        ) as harness:
            client = await harness.client()
            answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert answer.code == 0
            sent = await client.send(
                "T",
                b"half",
                sys_flag=4,
                born_timestamp=disk.clock.now_ms(),
                properties={"TRAN_MSG": "true", "PGROUP": "PG"},
            )
            assert sent.code == 0, sent
            await step_for(disk, 100 * HOUR_MS, 20)
            await asyncio.sleep(10)
            check_back = harness.broker.state.check_back
            assert (check_back.asked, check_back.discarded) == (0, 0)

    run(scenario())
