"""Requests about committed offsets and the ends of queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.harness import SMALL_STORE, new_disk, run, running, stored_table
from cometmq.wire.codes import RequestCode, ResponseCode


def test_a_committed_offset_is_returned_and_the_last_writer_wins() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            for offset in (7, 3):
                assert (await client.commit(offset)).code == 0
                assert (await client.committed()).ext == {"offset": str(offset)}

    run(scenario())


def test_a_new_group_starts_at_0_while_the_queue_is_young() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            assert (await client.committed()).ext == {"offset": "0"}
            answer = await client.committed(setZeroIfNotFound="false")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


def test_a_new_group_starts_at_the_end_of_a_queue_without_a_message() -> None:
    """It would miss what comes before it asks for the end."""

    async def scenario() -> None:
        async with running(replace(SMALL_STORE, memory_percent=0)) as harness:
            client = await harness.client()
            await client.send("T")
            assert (await client.committed(queue_id=1)).ext == {"offset": "0"}
            queue = harness.broker.store._queues.get_or_create("T", 2)
            queue.begin_at(7)  # the files of its seven messages are deleted
            assert (await client.committed(queue_id=2)).ext == {"offset": "7"}
            for fields in ({"queue": 99}, {"queue": -1}, {"topic": "Nope"}):
                assert (await client.committed(**fields)).code == ResponseCode.QUERY_NOT_FOUND
            answer = await client.committed(queue_id=1, setZeroIfNotFound="false")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


def test_a_new_group_is_not_sent_to_the_start_of_a_queue_that_begins_on_disk() -> None:
    async def scenario() -> None:
        async with running(replace(SMALL_STORE, memory_percent=0)) as harness:
            client = await harness.client()
            await client.send("T")
            assert (await client.committed()).code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "Nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "Nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "-1"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_commit_of_a_negative_offset_or_without_a_group_is_refused(
    fields: dict[str, str], code: int
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            assert (await client.commit(1, **fields)).code == code
            assert harness.broker.state.offsets.snapshot() == {}

    run(scenario())


def test_offsets_are_on_disk_after_a_stop_and_known_after_a_start() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            for _ in range(5):
                await client.send("T")
            await client.beat("CG", "T")
            await client.commit(5)
        stored = stored_table(disk, "consumerOffset.json")
        assert stored["offsetTable"] == {"T@CG": {"0": 5}}
        async with running(disk=disk) as harness:
            assert (await (await harness.client()).committed()).ext == {"offset": "5"}

    run(scenario())


def test_queues_tell_their_ends_and_times() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            queue = {"topic": "T", "queueId": "0"}
            answer = await client.call(RequestCode.GET_MAX_OFFSET, **queue)
            assert answer.ext == {"offset": "3"}
            answer = await client.call(RequestCode.GET_MIN_OFFSET, **queue)
            assert answer.ext == {"offset": "0"}
            answer = await client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
            stored_ms = int(answer.ext["timestamp"])
            for at, boundary, offset in (
                (stored_ms, "LOWER", "0"),
                (stored_ms + 600_000, "LOWER", "3"),
                (stored_ms - 600_000, "LOWER", "0"),
                (stored_ms + 600_000, "UPPER", "2"),
                (stored_ms + 600_000, "upper", "2"),  # Java reads it in any case
                (stored_ms - 600_000, "UPPER", "0"),
            ):
                fields = {**queue, "timestamp": str(at), "boundaryType": boundary}
                answer = await client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields)
                assert answer.ext == {"offset": offset}, (at - stored_ms, boundary)

    run(scenario())
