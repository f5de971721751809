"""Bounds of docs/operate/limits.md that belong to no larger subject with tests of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

import pytest

from broker.commands import heartbeat, pull_header, send_header, subscription
from broker.harness import run, running
from broker.sockets import run as run_really
from broker.sockets import running as running_really
from cometmq.broker.admin.statistics_requests import ENTRIES_MAX
from cometmq.broker.groups import heartbeat as heartbeats
from cometmq.broker.groups import unequal_members
from cometmq.broker.requests.large_tables import SMALL_MAX
from cometmq.broker.sends.plain_batches import SMALL_BATCH_MAX
from cometmq.rules.filters.sql92_parser import LENGTH_MAX
from cometmq.wire import fastjson
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.testing.sim_loop import SimLoop

KIB = 1024
BODY_BYTES_MAX = {
    Code.CHECK_CLIENT_CONFIG: 128 * KIB,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: 256 * KIB,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: 256 * KIB,
    Code.LOCK_BATCH_MQ: 512 * KIB,
    Code.UNLOCK_BATCH_MQ: 512 * KIB,
    Code.UPDATE_BROKER_CONFIG: 64 * KIB,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: 32 * KIB,
}


def test_a_body_above_the_bound_of_its_request_is_refused_before_it_is_read() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for code, limit in BODY_BYTES_MAX.items():
                answer = await client.call(code, None, b" " * (limit + 1))
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert f"has {limit + 1} bytes, the limit is {limit};" in str(answer.remark)
                answer = await client.call(code, None, b" " * limit)
                assert "the limit is" not in str(answer.remark)

    run(scenario())


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_an_expression_that_is_too_long_is_refused_in_a_pull(kind: str) -> None:
    async def scenario() -> None:
        async with running(enable_property_filter=True) as harness:
            client = await harness.client()
            await client.send("T")
            for length, is_refused in ((LENGTH_MAX + 1, True), (LENGTH_MAX, False)):
                text = "a" * length if kind == "TAG" else "a = 1".ljust(length)
                header = pull_header("T", subscription=text, expression_type=kind)
                answer = await client.call(Code.PULL_MESSAGE, header)
                refused = ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert (answer.code == refused) is is_refused, answer.remark

    run(scenario())


def test_an_answer_shows_a_bounded_number_of_a_queues_entries() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            body = message_batch.encode([BatchItem(0, b"x", b"")] * (ENTRIES_MAX + 5))
            header = send_header("T", batch=True, properties={})
            assert (await client.call(Code.SEND_BATCH_MESSAGE, header, body)).code == 0
            fields = {"topic": "T", "queueId": "0", "index": "0", "count": "1000000"}
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, None, **fields)
            found = cast("dict[str, list[object]]", fastjson.loads(answer.body))
            assert len(found["queueData"]) == ENTRIES_MAX

    run(scenario())


def test_a_table_that_fits_into_no_frame_is_refused_with_advice() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for number in range(SMALL_MAX + 1):
                harness.broker.state.topics.ensure(f"T{number}", 4)
            size = len((await client.call(Code.GET_ALL_TOPIC_CONFIG)).body)
            harness.broker.state.topics.ensure("one more", 4)
            harness.broker.state.large_tables._bytes_max = size
            answer = await client.call(Code.GET_ALL_TOPIC_CONFIG)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert f"an answer at most {size}: ask for pages of it" in str(answer.remark)

    run(scenario())


def test_after_a_large_batch_others_are_served_for_as_long_as_it_took() -> None:
    took_s = 0.03
    stored: list[float] = []

    async def scenario() -> None:
        async with running() as harness:
            client, loop = await harness.client(), cast("SimLoop", asyncio.get_running_loop())
            writer = harness.broker._handlers.send._batch_writer
            put = writer.put

            def slow(*what):  # type: ignore[no-untyped-def]
                stored.append(loop.time())
                loop.pass_time(took_s)
                return put(*what)

            writer.put = slow  # type: ignore[method-assign]
            body = message_batch.encode([BatchItem(0, b"x", b"")] * (SMALL_BATCH_MAX + 1))
            header = send_header("T", batch=True, properties={})
            sends = [client.call(Code.SEND_BATCH_MESSAGE, header, body) for _ in range(3)]
            assert {each.code for each in await asyncio.gather(*sends)} == {0}

    run(scenario())
    first, second, third = stored
    assert second - first >= 3 * took_s
    assert third - second >= 3 * took_s


def test_a_heartbeat_is_compared_with_a_bounded_number_of_other_kinds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unequal_members, "COMPARED_MAX", 2)

    async def scenario() -> None:
        async with running() as harness:
            for number in range(5):
                client = await harness.client()
                wanted = (subscription("T", f"tag{number}"),)
                await client.beat("CG", client_id=f"c{number}", subscriptions=wanted)
                said = [text for text in caplog.messages if f" c{number} wants" in text]
                assert len(said) == min(number, 2)

    run(scenario())


def test_long_heartbeats_are_read_in_a_thread_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = heartbeats._decoded
    threads: list[threading.Thread] = []
    reading = most = 0

    def noted(body: bytes):  # type: ignore[no-untyped-def]
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        threads.append(threading.current_thread())
        found = decode(body)
        reading -= 1
        return found

    monkeypatch.setattr(heartbeats, "_decoded", noted)

    async def scenario() -> None:
        async with running_really(tmp_path) as harness:
            client = await harness.client()
            for count in (1, 400):
                wanted = [heartbeat("CG", *[f"T{n}" for n in range(count)]) for _ in range(4)]
                beats = [client.call(Code.HEART_BEAT, None, encode_heartbeat(b)) for b in wanted]
                assert {each.code for each in await asyncio.gather(*beats)} == {0}

    run_really(scenario())
    assert [thread is threading.main_thread() for thread in threads] == [True] * 4 + [False] * 4
    assert most == 1
