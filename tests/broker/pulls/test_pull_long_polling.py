"""Pulls that wait: woken by an arrival that concerns them, or by their deadline, exactly once."""

from __future__ import annotations

import asyncio

from broker.commands import held_pull, records, until_held
from broker.harness import run, running
from cometmq.broker.pulls.held_requests import HELD_PER_KEY_MAX
from cometmq.wire.codes import RequestCode, ResponseCode


def test_an_arrival_answers_the_pulls_of_its_queue_and_no_others() -> None:
    async def scenario() -> None:
        async with running() as harness:
            producer, consumer = await harness.client(), await harness.client()
            await producer.send("T", b"first")
            waiting = [
                held_pull(consumer, "T", queue_id=1),
                held_pull(consumer, "T", queue_offset=1),
            ]
            await until_held(harness, 2)
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
            waiting = [held_pull(consumer, "T", queue_offset=1) for _ in range(HELD_PER_KEY_MAX)]
            await until_held(harness, HELD_PER_KEY_MAX)
            refused = await held_pull(consumer, "T", queue_offset=1)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            others = [
                held_pull(consumer, "T", queue_id=1),
                held_pull(producer, "T", queue_offset=1),
            ]
            await until_held(harness, HELD_PER_KEY_MAX + 2)
            for queue_id in (0, 1):
                await producer.send("T", queue_id=queue_id)
            assert {answer.code for answer in await asyncio.gather(*waiting, *others)} == {0}

    run(scenario())


def test_an_arrival_with_another_tag_leaves_the_pull_waiting() -> None:
    async def scenario() -> None:
        async with running() as harness:
            producer, consumer = await harness.client(), await harness.client()
            await producer.send("T")
            waiting = held_pull(consumer, "T", queue_offset=1, subscription="B")
            await until_held(harness, 1)
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
            answer = await held_pull(client, "T", queue_offset=1, suspend_timeout_ms=150)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert answer.ext["nextBeginOffset"] == "1"
            assert asyncio.get_running_loop().time() - started >= 0.15

    run(scenario())


def test_without_the_bit_nothing_waits() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            answer = await held_pull(client, "T", queue_offset=1, sys_flag=4)
            assert answer.code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_short_polling_waits_for_its_own_time_only() -> None:
    async def scenario() -> None:
        settings = {"long_polling_enable": False, "short_polling_time_ms": 50}
        async with running(**settings) as harness:
            client = await harness.client()
            await client.send("T")
            async with asyncio.timeout(5):
                answer = await held_pull(client, "T", queue_offset=1)
            assert answer.code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_answers_carry_the_opaque_of_their_own_request() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = [held_pull(client, "T", queue_id=queue) for queue in (1, 2, 3)]
            await until_held(harness, 3)
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
            kept = held_pull(stays, "T", queue_offset=1)
            lost = [held_pull(goes, "T", queue_id=queue) for queue in (1, 2)]
            await until_held(harness, 3)
            goes.close()
            await until_held(harness, 1)
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
            waiting = held_pull(client, "T", queue_offset=3)
            await until_held(harness, 1)
            fields = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
            answer = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert answer.code == 0, answer
            moved = await waiting
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            assert moved.ext["nextBeginOffset"] == "0"

    run(scenario())


def test_too_many_waiting_pulls_are_refused_as_busy() -> None:
    async def scenario() -> None:
        async with running(held_pulls_max=2) as harness:
            client = await harness.client()
            await client.send("T")
            waiting = [held_pull(client, "T", queue_id=queue) for queue in (1, 2)]
            await until_held(harness, 2)
            assert (await held_pull(client, "T", queue_id=3)).code == ResponseCode.SYSTEM_BUSY
            await client.send("T", queue_id=1)
            assert (await waiting[0]).code == 0

    run(scenario())


def test_a_stop_answers_whoever_waits() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = held_pull(client, "T", queue_offset=1)
            await until_held(harness, 1)
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
                held_pull(client, "T", queue_offset=1, consumer_group=f"G{number}")
                for number in range(50)
            ]
            await until_held(harness, 50)
            await client.send("T", b"to all")
            for one in waiting:
                assert records(await one)[0].body == b"to all"

    run(scenario())
