"""The wall clock is set while timers wait: none is lost, repeated or early, and the log says it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.commands import received
from broker.delivery.timer_commands import TIMERS, bodies, timed
from broker.harness import new_disk, now_ms, run, running

if TYPE_CHECKING:
    from broker.commands import Client

HOUR_MS = 3_600_000
PRECISION_S = TIMERS.timer_precision_ms / 1_000


async def seconds_until(client: Client, count: int) -> float:
    """How long it takes until so many messages are there."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while len(await client.drain("T")) < count:
        await asyncio.sleep(0.05)
    return loop.time() - began


def said_of_the_clock(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "clock" in one.getMessage()]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_timers_come_at_their_time_over_a_clock_that_is_wrong_for_a_moment(
    by_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            at_ms = now_ms() + 20_000
            await timed(client, b"at", DELIVER_MS=at_ms)
            await timed(client, b"after", DELAY_SEC=20)
            await timed(client, b"long", DELIVER_MS=at_ms + 2 * 60_000)
            disk.clock.step(by_ms)
            await asyncio.sleep(8)
            assert await client.drain("T") == [], "a step ahead makes nothing due"
            disk.clock.step(-by_ms)
            # set back, the store's time went a tenth slower for eight seconds
            assert 12 <= await seconds_until(client, 2) <= 12 + PRECISION_S + 0.8 + 0.3
            assert sorted(bodies(await client.drain("T"))) == [b"after", b"at"]
            await seconds_until(client, 3)
            await asyncio.sleep(5)
            found = await client.drain("T")
            assert [one.body for one in found].count(b"long") == 1
            assert len(found) == 3
            assert disk.clock.now_ms() >= at_ms + 2 * 60_000

    run(scenario())
    assert said_of_the_clock(caplog), "a step is logged"


def test_timers_follow_a_clock_that_stays_ahead_after_a_minute_each_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            began_ms = now_ms()
            for number in range(20):  # every three minutes
                await timed(client, b"%d" % number, DELIVER_MS=began_ms + 180_000 * (number + 1))
            disk.clock.step(HOUR_MS + 60_000)
            await asyncio.sleep(50)
            assert await client.drain("T") == []
            assert await seconds_until(client, 20) < 20
            await asyncio.sleep(10)
            found = await client.drain("T")
            assert sorted(bodies(found), key=int) == [b"%d" % each for each in range(20)]
            again = now_ms()
            await timed(client, b"new", DELAY_SEC=3)
            assert 3 <= await seconds_until(client, 21) <= 3 + PRECISION_S + 0.3
            assert now_ms() > again

    run(scenario())
    said = said_of_the_clock(caplog)
    assert any("ahead" in one for one in said), said
    assert any("follow it now" in one for one in said), said


def test_timers_are_a_tenth_later_at_most_while_a_clock_that_was_set_back_is_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            await timed(client, b"before", DELAY_SEC=30)
            disk.clock.step(-HOUR_MS)
            await timed(client, b"behind", DELAY_SEC=30)
            took_s = await seconds_until(client, 2)
            assert 30 <= took_s <= 30 * 10 / 9 + PRECISION_S + 0.5
            await asyncio.sleep(10)
            assert sorted(bodies(await client.drain("T"))) == [b"before", b"behind"]

    run(scenario())
    assert any("behind the store times" in one for one in said_of_the_clock(caplog))


@pytest.mark.parametrize("by_ms", [10 * 60_000, -10 * 60_000])
def test_timers_survive_a_clock_that_was_set_while_the_broker_was_down(by_ms: int) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            await timed(client, b"waits", DELAY_SEC=60)
            await timed(client, b"due", DELAY_SEC=2)
            await received(client, 1)
        disk.clock.step(by_ms)
        async with running(TIMERS, disk=disk) as harness:
            client = await harness.client()
            took_s = await seconds_until(client, 2)
            # ahead: it is due at once; behind: no time passed while the broker was down
            assert took_s <= (5 if by_ms > 0 else 60 * 10 / 9 + PRECISION_S + 0.5)
            await timed(client, b"new", DELAY_SEC=2)
            await seconds_until(client, 3)
            await asyncio.sleep(10)
            assert bodies(await client.drain("T")) == [b"due", b"waits", b"new"]

    run(scenario())
