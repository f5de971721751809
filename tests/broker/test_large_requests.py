"""Large but legal: bodies, tables and answers that would hold up the loop if taken at once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker.commands import heartbeat
from broker.harness import run, running
from cometmq.broker.admin.topic_requests import LIST_MAX
from cometmq.broker.groups import client_registry
from cometmq.broker.groups.heartbeat import NOTIFIED_AT_ONCE_MAX
from cometmq.broker.groups.lock_requests import LOCK_BYTES_MAX
from cometmq.broker.requests.large_tables import SMALL_MAX
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import CLIENT_ID_CHARS_MAX, HeartbeatData
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.store import cold_reads
from cometmq.wire import fastjson
from cometmq.wire.bodies import admin as bodies
from cometmq.wire.bodies.group import decode_group_table
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.bodies.lock import LockRequest, decode_locked, encode_lock_request
from cometmq.wire.bodies.name_lists import decode_group_list
from cometmq.wire.bodies.offset import decode_reset_offset
from cometmq.wire.bodies.topic import decode_topic_table, encode_data_version
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from broker.commands import Client, Harness

LENIENT = b"[" + b"'a'," * (LOCK_BYTES_MAX // 4)
"""As Java might write it, and longer than any body that may be so, but for heartbeats: these a
thread reads."""
QUEUES, FILLED = SMALL_MAX + 50, 3
"""Queues of a topic, and those of them that have a message."""


@pytest.fixture
def read_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the texts were that Python read character by character."""
    sizes: list[int] = []
    inner = fastjson._Reader.__init__

    def note(self: fastjson._Reader, text: str) -> None:
        sizes.append(len(text))
        inner(self, text)

    monkeypatch.setattr(fastjson._Reader, "__init__", note)
    return sizes


def test_no_request_of_a_broker_reads_a_long_body_that_is_not_plain_json(
    read_sizes: list[int],
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            for code in sorted(harness.broker.codes - {Code.HEART_BEAT}):
                client = await harness.client()
                answer = asyncio.ensure_future(client.call(code, None, LENIENT))
                await asyncio.wait([answer], timeout=11)
                client.close()
                answer.exception()
            client = await harness.client()
            assert (await client.send("T")).code == 0

    run(scenario())
    assert max(read_sizes, default=0) <= LENIENT_BYTES_MAX


def test_no_request_of_a_name_server_reads_one_either(read_sizes: list[int]) -> None:
    async def scenario() -> None:
        server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
        await server.start()
        for code in sorted(server.codes):
            channel = await connect(server.address)
            command = request(code, 0, None, LENIENT)
            command.ext = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c"}
            await channel.call(command, 10)
            channel.close()
        await server.stop()

    asyncio.run(scenario())
    assert max(read_sizes, default=0) <= LENIENT_BYTES_MAX


def test_a_long_body_of_plain_json_is_read_and_one_that_is_too_long_is_refused() -> None:
    def groups(count: int, name: str) -> bytes:
        configs = [{"groupName": f"{name}{number}"} for number in range(count)]
        return json.dumps({"groupConfigList": configs}).encode()

    async def scenario() -> None:
        async with running() as harness:
            client, code = await harness.client(), Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            body = groups(LIST_MAX, "g" * 100)
            assert len(body) > LENIENT_BYTES_MAX
            assert (await client.call(code, None, body)).code == 0
            refused = await client.call(code, None, groups(LIST_MAX + 1, "more"))
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert "send several" in (refused.remark or "")
            refused = await client.call(code, None, groups(3_000, "g" * 100))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "the limit is 262144; ask in several requests" in (refused.remark or "")
            assert harness.broker.state.groups.get("more0") is None
            assert harness.broker.state.groups.get("g" * 100 + "2999") is None

    run(scenario())


async def many_queues(harness: Harness) -> Client:
    """A client of a broker with a topic of many queues, of which a group has read some."""
    client, state = await harness.client(), harness.broker.state
    state.topics.ensure("T", QUEUES)
    for queue_id in range(QUEUES):
        if queue_id < FILLED:
            assert (await client.send("T", queue_id=queue_id)).code == 0
        state.offsets.commit("CG", "T", queue_id, int(queue_id == 1))
    assert (await client.beat("CG", "T")).code == 0
    return client


def test_answers_about_many_queues_are_those_about_a_few() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await many_queues(harness)
            all_queues = {MessageQueue("T", "b0", number) for number in range(QUEUES)}
            answer = await client.call(Code.GET_TOPIC_STATS_INFO, topic="T")
            stats = bodies.decode_topic_stats(answer.body)
            assert stats.keys() == all_queues
            assert sum(one.max_offset for one in stats.values()) == FILLED
            answer = await client.call(Code.GET_CONSUME_STATS, consumerGroup="CG")
            progress = bodies.decode_consume_stats(answer.body).offset_table
            assert progress.keys() == all_queues
            assert [queue[2] for queue, one in progress.items() if one.consumer_offset] == [1]
            answer = await client.call(Code.GET_BROKER_CONSUME_STATS, isOrder="false")
            table = fastjson.loads(answer.body)
            assert table["totalDiff"] == FILLED - 1
            (mine,) = [one["CG"] for one in table["consumeStatsList"] if "CG" in one]
            assert len(mine[0]["offsetTable"]) == QUEUES
            answer = await client.call(Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="CG")
            spans = bodies.decode_time_spans(answer.body)
            assert {span.message_queue for span in spans} == all_queues
            answer = await client.call(
                Code.INVOKE_BROKER_TO_RESET_OFFSET,
                topic="T",
                group="CG",
                timestamp="-1",
                isForce="true",
            )
            reset = decode_reset_offset(answer.body)
            assert reset == {queue: int(queue[2] < FILLED) for queue in all_queues}
            answer = await client.call(
                Code.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="CG", filterGroups=""
            )
            assert len(fastjson.loads(answer.body)["correctionOffsets"]) == QUEUES
            fields = {"srcGroup": "CG", "destGroup": "D", "topic": "T", "offline": "true"}
            assert (await client.call(Code.CLONE_GROUP_OFFSET, **fields)).code == 0
            state = harness.broker.state
            assert state.offsets.queues_of("D", "T") == state.offsets.queues_of("CG", "T")

    run(scenario())


def test_however_many_ask_about_many_queues_an_iteration_reads_a_few_of_them() -> None:
    reads = most = 0

    async def scenario() -> None:
        nonlocal reads, most
        async with running() as harness:
            client = await many_queues(harness)
            reader, loop = harness.broker.store.cold_reader, asyncio.get_running_loop()
            inner = reader.run

            async def count(prepare):  # type: ignore[no-untyped-def]
                nonlocal reads
                reads += 1
                return await inner(prepare)

            reader.run = count  # type: ignore[method-assign]

            def look() -> None:
                nonlocal reads, most
                most, reads = max(most, reads), 0
                if not asked.done():
                    loop.call_soon(look)

            asked = asyncio.gather(
                *(client.call(Code.GET_TOPIC_STATS_INFO, topic="T") for _ in range(20))
            )
            loop.call_soon(look)
            for answer in await asked:
                assert len(bodies.decode_topic_stats(answer.body)) == QUEUES

    run(scenario())
    assert 0 < most <= cold_reads._SLICE


def test_pages_of_large_tables_are_in_order_and_change_with_the_table() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, state = await harness.client(), harness.broker.state
            for number in range(SMALL_MAX + 50):
                state.topics.ensure(f"T{number}", 1)
                state.groups.admit(f"G{number}")
            state.groups.forbid("G7", "T7", is_forbidden=True)
            await state.topics.writer.flushed()
            seen: list[str] = []
            version = state.topics.version
            fields = {"dataVersion": encode_data_version(version).decode()}
            while True:
                answer = await client.call(
                    Code.GET_ALL_TOPIC_CONFIG, topicSeq=str(len(seen)), maxTopicNum="90", **fields
                )
                page = decode_topic_table(answer.body)
                assert answer.ext["totalTopicNum"] == str(len(state.topics.table))
                if not page.topics:
                    break
                seen += page.topics
            assert seen == sorted(state.topics.table)
            answer = await client.call(
                Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq="0", maxGroupNum="2000"
            )
            groups = decode_group_table(answer.body)
            assert groups.groups.keys() == state.groups.table.keys()
            assert list(groups.forbidden) == ["G7"]
            state.topics.ensure("A", 1)
            answer = await client.call(Code.GET_ALL_TOPIC_CONFIG, topicSeq="0", maxTopicNum="1")
            assert list(decode_topic_table(answer.body).topics) == ["A"]

    run(scenario())


def test_many_readers_and_connections_are_listed() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, state = await harness.client(), harness.broker.state
            names = [f"G{number:04}" for number in range(SMALL_MAX + 50)]
            for name in names:
                state.offsets.commit(name, "T", 0, 1)
            answer = await client.call(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
            assert decode_group_list(answer.body) == names
            clients = [await harness.client() for _ in range(SMALL_MAX + 1)]
            for number, one in enumerate(clients):
                beat = HeartbeatData(client_id=f"c{number}", producer_groups=("PG",))
                await one.call(Code.HEART_BEAT, None, encode_heartbeat(beat))
                await one.beat("CG", "T", client_id=f"c{number}")
            answer = await client.call(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
            found = bodies.decode_producer_connections(answer.body)
            assert len({one.client_id for one in found}) == len(clients)
            answer = await client.call(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
            group = bodies.decode_consumer_connections(answer.body)
            assert len(group.connections) == len(clients)
            assert "T" in group.subscriptions
            answer = await client.call(Code.GET_ALL_PRODUCER_INFO)
            assert len(fastjson.loads(answer.body)["data"]["PG"]) == len(clients)

    run(scenario())


def test_all_members_of_a_large_group_are_notified_a_few_in_an_iteration() -> None:
    count = 3 * NOTIFIED_AT_ONCE_MAX

    async def scenario() -> None:
        async with running() as harness:
            clients = [await harness.client() for _ in range(count)]
            for number, client in enumerate(clients):
                await client.beat("CG", "T", client_id=f"c{number}")
            await asyncio.sleep(1)
            for client in clients:
                while not client.asked.empty():
                    client.asked.get_nowait()
            late = await harness.client()
            await late.beat("CG", "T", client_id="late")
            for client in (*clients, late):
                notice = await client.asked_next()
                assert notice.code == Code.NOTIFY_CONSUMER_IDS_CHANGED
            await asyncio.sleep(1)
            assert all(client.asked.empty() for client in clients)
            handler = harness.broker._handlers._heartbeat
            assert not handler._to_notify
            assert not handler._changed

    run(scenario())


def test_names_in_heartbeats_and_locks_that_nobody_has_are_refused() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for beat in (
                heartbeat("CG", "T", client_id="c" * (CLIENT_ID_CHARS_MAX + 1)),
                HeartbeatData(client_id="c", producer_groups=("p" * 300,)),
            ):
                answer = await client.call(Code.HEART_BEAT, None, encode_heartbeat(beat))
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "the limit is" in (answer.remark or "")
            queue = MessageQueue("T", "b0", 0)
            for wanted in (
                LockRequest("CG", "c" * 2_000, (queue,)),
                LockRequest("g" * 300, "c", (queue,)),
                LockRequest("CG", "c", (queue._replace(topic="t" * 300),)),
            ):
                answer = await client.call(Code.LOCK_BATCH_MQ, None, encode_lock_request(wanted))
                assert answer.code == ResponseCode.INVALID_PARAMETER
            assert not harness.broker.state.clients.consumers
            assert not harness.broker.state.clients.producers

    run(scenario())


def test_memory_of_what_heartbeats_said_is_bounded_and_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_registry, "KEPT_BYTES_MAX", 50_000)

    async def scenario() -> None:
        async with running() as harness:
            clients = harness.broker.state.clients
            greedy, modest = await harness.client(), await harness.client()
            for number in range(100):
                await greedy.beat(f"G{number}", "T", client_id="greedy")
            kept = clients.kept_bytes
            assert 40_000 < kept <= 50_000
            await greedy.beat("G0", "T", client_id="greedy")
            assert clients.kept_bytes == kept, "the same again costs nothing"
            await modest.beat("M", "T", client_id="modest")
            assert "M" not in clients.consumers
            greedy.close()
            await asyncio.sleep(1)
            assert clients.kept_bytes < 2_000, "what the modest one keeps"
            await modest.beat("M", "T", client_id="modest")
            assert "M" in clients.consumers

    run(scenario())
    assert sum("heartbeats keep 50000 bytes" in text for text in caplog.messages) == 1


def test_very_many_queues_are_locked_and_unlocked_in_one_request() -> None:
    queues = tuple(MessageQueue("T", "b0", number) for number in range(1_700))

    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            body = encode_lock_request(LockRequest("CG", "c1", queues))
            answer = await client.call(Code.LOCK_BATCH_MQ, None, body)
            assert decode_locked(answer.body) == set(queues)
            theirs = encode_lock_request(LockRequest("CG", "c2", queues))
            answer = await other.call(Code.LOCK_BATCH_MQ, None, theirs)
            assert decode_locked(answer.body) == set()
            assert (await client.call(Code.UNLOCK_BATCH_MQ, None, body)).code == 0
            answer = await other.call(Code.LOCK_BATCH_MQ, None, theirs)
            assert decode_locked(answer.body) == set(queues)

    run(scenario())
