"""What administrators ask and change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.commands import Client, records
from broker.harness import new_disk, run, running, stored_table
from broker.messages.test_held_pulls import parked, pulls
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import TopicConfig
from cometmq.wire.bodies import admin as bodies
from cometmq.wire.bodies.group import decode_group_config, decode_group_table, encode_group_config
from cometmq.wire.bodies.name_lists import decode_group_list, decode_kv_table, decode_topic_list
from cometmq.wire.bodies.topic import (
    decode_topic_config,
    decode_topic_table,
    encode_topic_config_list,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response

RUNTIME_KEYS = """
    brokerVersionDesc brokerActive putTps getTransferredTps getTransferedTps brokerVersion
    sendThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize
    pullThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills earliestMessageTimeStamp
    commitLogDiskRatio msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow timerReadBehind
    timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps consumeQueueDiskRatio
    putMessageAverageSize bootTimestamp runtime commitLogMinOffset commitLogMaxOffset
    commitLogDirCapacity remainHowManyDataToFlush ackThreadPoolQueueSize getFoundTps getMissTps
    getTotalTps putMessageDistributeTime putLatency99 putLatency999 putMessageFailedTimes
    putMessageEntireTimeMax getMessageEntireTimeMax
"""


async def create(client: Client, topic: str = "T", **more: Any) -> Command:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "3",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    return await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**fields, **more})


async def config_of(client: Client, topic: str) -> TopicConfig | None:
    answer = await client.call(RequestCode.GET_TOPIC_CONFIG, topic=topic)
    return decode_topic_config(answer.body) if answer.code == 0 else None


def test_a_topic_is_created_changed_told_and_deleted() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            assert (await create(client, attributes="+message.type=FIFO")).code == 0
            found = await config_of(client, "T")
            assert found == TopicConfig(
                topic_name="T",
                read_queue_nums=3,
                write_queue_nums=3,
                attributes={"message.type": "FIFO"},
            )
            before = harness.broker.state.topics.version
            assert (await create(client)).code == 0
            assert harness.broker.state.topics.version == before, "nothing changed"
            assert (await create(client, perm="4", attributes="-message.type")).code == 0
            found = await config_of(client, "T")
            assert found is not None
            assert (found.perm, found.attributes) == (4, {})
            assert (await client.send("T")).code == 0
            await client.beat("CG", "T")
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            assert (await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            assert await config_of(client, "T") is None
            assert harness.broker.state.offsets.snapshot() == {}
            assert harness.broker.store.max_offset("T", 0) == 0

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "rmq_sys_mine"}, ResponseCode.INVALID_PARAMETER),
        ({"readQueueNums": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"writeQueueNums": "70000"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER),
        ({"attributes": "+message.type=ODD"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+color=red"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+queue.type=BatchCQ"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_not_made(fields: dict[str, str], code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            before = dict(harness.broker.state.topics.table)
            answer = await create(client, **fields)
            assert answer.code == code, answer
            assert answer.remark
            assert harness.broker.state.topics.table == before

    run(scenario())


def test_topics_survive_a_restart_in_the_form_that_apache_writes() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            await create(await harness.client(), order="true")
        stored = stored_table(disk, "topics.json")
        assert list(stored) == ["dataVersion", "topicConfigTable"]
        assert stored["topicConfigTable"]["T"] == {
            "attributes": {},
            "order": True,
            "perm": 6,
            "readQueueNums": 3,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 0,
            "writeQueueNums": 3,
        }
        async with running(disk=disk) as harness:
            found = await config_of(await harness.client(), "T")
            assert found is not None
            assert found.order

    run(scenario())


def test_all_topics_are_told_the_brokers_own_included() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            body = encode_topic_config_list([TopicConfig(topic_name=name) for name in "AB"])
            answer = await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            assert answer.code == 0
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            told = decode_topic_table(answer.body).topics
            assert {"A", "B", "TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "b0"} <= set(told)
            assert told["TBW102"].perm == 7
            answer = await client.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            assert "SELF_TEST_TOPIC" in decode_topic_list(answer.body)

    run(scenario())


def test_groups_are_created_told_and_deleted() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            config = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            assert (await client.call(code, None, encode_group_config(config))).code == 0
            answer = await client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="CG")
            assert decode_group_config(answer.body) == config
            answer = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            assert {"CG", "TOOLS_CONSUMER"} <= set(decode_group_table(answer.body).groups)
            bad = SubscriptionGroupConfig(group_name="a b")
            answer = await client.call(code, None, encode_group_config(bad))
            assert answer.code == ResponseCode.INVALID_PARAMETER
        async with running(disk=disk) as harness:
            client = await harness.client()
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            fields = {"groupName": "CG", "cleanOffset": "true"}
            assert (await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **fields)).code == 0
            assert "CG" not in harness.broker.state.groups.table
            assert harness.broker.state.offsets.snapshot() == {}

    run(scenario())


def test_progress_of_topics_and_groups_is_told() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T", max_msg_nums=2)
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            queue = MessageQueue("T", "b0", 0)
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
            told = bodies.decode_topic_stats(answer.body)
            assert len(told) == 4
            assert (told[queue].min_offset, told[queue].max_offset) == (0, 3)
            assert told[queue].last_update_timestamp > 0
            answer = await client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="CG")
            progress = bodies.decode_consume_stats(answer.body).offset_table[queue]
            assert (progress.broker_offset, progress.consumer_offset) == (3, 1)
            assert progress.pull_offset == 2
            assert progress.last_timestamp > 0
            answer = await client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
            assert decode_group_list(answer.body) == ["CG"]
            answer = await client.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="CG")
            assert decode_topic_list(answer.body) == ["T"]
            fields = {"topic": "T", "group": "CG"}
            answer = await client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, **fields)
            spans = bodies.decode_time_spans(answer.body)
            assert {span.message_queue.queue_id for span in spans} == {0, 1, 2, 3}
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="Nope")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())


def test_connections_are_told() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
            told = bodies.decode_consumer_connections(answer.body)
            assert [(one.client_id, one.language) for one in told.connections] == [("c1", "PYTHON")]
            assert list(told.subscriptions) == ["T"]
            answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
            assert bodies.decode_producer_connections(answer.body)[0].client_id == "c1"
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="X")
            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
            answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="X")
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_a_question_is_handed_on_to_the_consumer_and_its_answer_back() -> None:
    async def scenario() -> None:
        async with running() as harness:
            consumer, asker = await harness.client(), await harness.client()
            await consumer.beat("CG", "T")
            await consumer.asked_next()  # the group changed
            fields = {"consumerGroup": "CG", "clientId": "c1"}
            asked = asyncio.create_task(asker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields))
            question = await consumer.asked_next()
            assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
            assert question.ext["clientId"] == "c1"
            consumer.channel.answer(response(question.opaque, 0, body=b"{}"))
            assert (await asked).body == b"{}"
            answer = await asker.call(
                RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c9"
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_a_stored_message_is_handed_to_a_consumer_to_be_handled_now() -> None:
    async def scenario() -> None:
        async with running() as harness:
            consumer, asker = await harness.client(), await harness.client()
            sent = await asker.send("T", b"now")
            await consumer.beat("CG", "T")
            await consumer.asked_next()
            fields = {"consumerGroup": "CG", "clientId": "c1", "msgId": sent.ext["msgId"]}
            asked = asyncio.create_task(asker.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields))
            question = await consumer.asked_next()
            assert records(question)[0].body == b"now"
            consumer.close()
            assert (await asked).code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_the_runtime_information_has_every_key_that_tools_read() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(2):
                await client.send("T")
            await client.pull("T")
            answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            told = decode_kv_table(answer.body)
            assert not set(RUNTIME_KEYS.split()) - set(told)
            assert told["msgPutTotalTodayNow"] == told["msgGetTotalTodayNow"] == "2"
            assert len(told["putTps"].split()) == 3
            assert int(told["earliestMessageTimeStamp"]) > 1_700_000_000_000

    run(scenario())


def test_a_message_is_found_by_its_place_its_key_its_id_and_its_tag() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            pairs = {"KEYS": "a k", "UNIQ_KEY": "id-1", "TAGS": "t"}
            sent = await client.send("T", b"found", properties=pairs)
            offset = str(int(sent.ext["msgId"][16:], 16))
            answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
            assert records(answer)[0].body == b"found"
            for wrong in ("7", "-1", str(10**15)):
                answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=wrong)
                assert answer.code == ResponseCode.SYSTEM_ERROR
            fields = {
                "topic": "T",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": str((1 << 63) - 1),
            }
            unique = {"_UNIQUE_KEY_QUERY": "true", "maxNum": "0"}
            asked = ({"key": "k"}, {"key": "id-1"} | unique, {"key": "t", "indexType": "T"})
            for more in asked:
                answer = await client.call(RequestCode.QUERY_MESSAGE, **(fields | more))
                assert answer.code == ResponseCode.SUCCESS
                assert [record.body for record in records(answer)] == [b"found"]
                assert answer.ext["indexLastUpdatePhyoffset"] == offset
                assert int(answer.ext["indexLastUpdateTimestamp"]) == records(answer)[0].store_ms
            for nothing in ({"key": "t"}, {"key": "k", "maxNum": "0"}, {"key": "a k"}):
                answer = await client.call(RequestCode.QUERY_MESSAGE, **(fields | nothing))
                assert answer.code == ResponseCode.QUERY_NOT_FOUND
                assert answer.ext["indexLastUpdatePhyoffset"] == "0"

    run(scenario())


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.AUTH_CREATE_USER, 31_999])
def test_an_unknown_code_is_answered_and_the_connection_stays(code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.call(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert "not supported" in (answer.remark or "")
            assert str(int(code)) in (answer.remark or "")
            assert (await client.send("T")).code == 0

    run(scenario())


def test_a_deleted_topic_answers_who_waits_on_it() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = pulls(client, "T", queue_offset=1)
            await parked(harness, 1)
            await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())
