"""Pulls that wait: woken by an arrival that concerns them, or by their deadline, exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.commands import Client, Harness, pull_header, records
from broker.harness import run, running
from cometmq.broker.messages.held_requests import HELD_PER_KEY_MAX
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, request

WAITING = 4 | 2


def pulls(client: Client, topic: str, **more: Any) -> asyncio.Future[Command]:
    """Send a pull that may wait, and do not wait for its answer."""
    header = pull_header(topic, **{"sys_flag": WAITING, "suspend_timeout_ms": 20_000, **more})
    return client.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))


async def parked(harness: Harness, count: int) -> None:
    """Wait until so many pulls are parked."""
    async with asyncio.timeout(10):
        while harness.broker.state.held_requests.count != count:
            await asyncio.sleep(0.005)


def test_an_arrival_answers_the_pulls_of_its_queue_and_no_others() -> None:
    async def scenario() -> None:
        async with running() as harness:
            producer, consumer = await harness.client(), await harness.client()
            await producer.send("T", b"first")
            waiting = [pulls(consumer, "T", queue_id=1), pulls(consumer, "T", queue_offset=1)]
            await parked(harness, 2)
            await producer.send("T", b"second", queue_id=1)
            answer = await waiting[0]
            assert [record.body for record in records(answer)] == [b"second"]
            assert not waiting[1].done()
            await producer.send("T", b"third")
            assert [record.body for record in records(await waiting[1])] == [b"third"]
            assert harness.broker.state.held_requests.count == 0

    run(scenario())


def test_so_many_pulls_of_one_connection_wait_on_one_queue_and_no_more() -> None:
    async def scenario() -> None:
        async with running() as harness:
            producer, consumer = await harness.client(), await harness.client()
            await producer.send("T")
            waiting = [pulls(consumer, "T", queue_offset=1) for _ in range(HELD_PER_KEY_MAX)]
            await parked(harness, HELD_PER_KEY_MAX)
            refused = await pulls(consumer, "T", queue_offset=1)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            others = [pulls(consumer, "T", queue_id=1), pulls(producer, "T", queue_offset=1)]
            await parked(harness, HELD_PER_KEY_MAX + 2)
            for queue_id in (0, 1):
                await producer.send("T", queue_id=queue_id)
            assert {answer.code for answer in await asyncio.gather(*waiting, *others)} == {0}

    run(scenario())


def test_an_arrival_with_another_tag_leaves_the_pull_waiting() -> None:
    async def scenario() -> None:
        async with running() as harness:
            producer, consumer = await harness.client(), await harness.client()
            await producer.send("T")
            waiting = pulls(consumer, "T", queue_offset=1, subscription="B")
            await parked(harness, 1)
            await producer.send("T", properties={"TAGS": "A"})
            assert harness.broker.state.held_requests.count == 1
            await producer.send("T", b"mine", properties={"TAGS": "B"})
            assert [record.body for record in records(await waiting)] == [b"mine"]

    run(scenario())


def test_the_deadline_answers_not_found_with_the_offset_asked_for() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            started = asyncio.get_running_loop().time()
            answer = await pulls(client, "T", queue_offset=1, suspend_timeout_ms=150)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert answer.ext["nextBeginOffset"] == "1"
            assert asyncio.get_running_loop().time() - started >= 0.15

    run(scenario())


def test_without_the_bit_nothing_waits() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            answer = await pulls(client, "T", queue_offset=1, sys_flag=4)
            assert answer.code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_short_polling_waits_for_its_own_time_only() -> None:
    async def scenario() -> None:
        settings = {"long_polling_enable": False, "short_polling_time_ms": 50}
        async with running(**settings) as harness:
            client = await harness.client()
            await client.send("T")
            async with asyncio.timeout(5):
                answer = await pulls(client, "T", queue_offset=1)
            assert answer.code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_answers_carry_the_opaque_of_their_own_request() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = [pulls(client, "T", queue_id=queue) for queue in (1, 2, 3)]
            await parked(harness, 3)
            for queue in (3, 1, 2):
                await client.send("T", b"%d" % queue, queue_id=queue)
            bodies = [records(await one)[0].body for one in waiting]
            assert bodies == [b"1", b"2", b"3"]

    run(scenario())


def test_a_closed_connection_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with running() as harness:
            stays, goes = await harness.client(), await harness.client()
            await stays.send("T")
            kept = pulls(stays, "T", queue_offset=1)
            lost = [pulls(goes, "T", queue_id=queue) for queue in (1, 2)]
            await parked(harness, 3)
            goes.close()
            await parked(harness, 1)
            await asyncio.gather(*lost, return_exceptions=True)
            await stays.send("T", b"still here")
            assert (await kept).code == 0

    run(scenario())


def test_a_reset_wakes_the_waiting_pull_and_tells_it_where_to_go() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            waiting = pulls(client, "T", queue_offset=3)
            await parked(harness, 1)
            fields = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
            answer = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert answer.code == 0, answer
            moved = await waiting
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            assert moved.ext["nextBeginOffset"] == "0"

    run(scenario())


def test_too_many_waiting_pulls_are_refused_as_busy() -> None:
    async def scenario() -> None:
        async with running(parked_pulls_max=2) as harness:
            client = await harness.client()
            await client.send("T")
            waiting = [pulls(client, "T", queue_id=queue) for queue in (1, 2)]
            await parked(harness, 2)
            assert (await pulls(client, "T", queue_id=3)).code == ResponseCode.SYSTEM_BUSY
            await client.send("T", queue_id=1)
            assert (await waiting[0]).code == 0

    run(scenario())


def test_a_stop_answers_whoever_waits() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = pulls(client, "T", queue_offset=1)
            await parked(harness, 1)
            stopping = asyncio.create_task(harness.broker.stop())
            assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
            await stopping

    run(scenario())


def test_a_message_that_arrives_with_many_waiting_reaches_all() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = [
                pulls(client, "T", queue_offset=1, consumer_group=f"G{number}")
                for number in range(50)
            ]
            await parked(harness, 50)
            await client.send("T", b"to all")
            for one in waiting:
                assert records(await one)[0].body == b"to all"

    run(scenario())
