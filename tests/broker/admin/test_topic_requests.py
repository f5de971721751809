"""Topics as administrators create, change, list and delete them."""

from __future__ import annotations

import pytest

from broker.commands import Client, held_pull, until_held
from broker.harness import new_disk, run, running, stored_table
from cometmq.model.topic import TopicConfig
from cometmq.wire.bodies.name_lists import decode_topic_list
from cometmq.wire.bodies.topic import (
    decode_topic_config,
    decode_topic_table,
    encode_topic_config_list,
)
from cometmq.wire.codes import RequestCode, ResponseCode


async def config_of(client: Client, topic: str) -> TopicConfig | None:
    answer = await client.call(RequestCode.GET_TOPIC_CONFIG, topic=topic)
    return decode_topic_config(answer.body) if answer.code == 0 else None


def test_a_topic_is_created_changed_shown_and_deleted() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            assert (await client.create_topic(attributes="+message.type=FIFO")).code == 0
            found = await config_of(client, "T")
            assert found == TopicConfig(
                topic_name="T",
                read_queue_nums=3,
                write_queue_nums=3,
                attributes={"message.type": "FIFO"},
            )
            before = harness.broker.state.topics.version
            assert (await client.create_topic()).code == 0
            assert harness.broker.state.topics.version == before, "nothing changed"
            assert (await client.create_topic(perm="4", attributes="-message.type")).code == 0
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
        ({"attributes": "+message.type=LITE"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER),
        ({"attributes": "+message.type=ODD"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+color=red"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+queue.type=BatchCQ"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_invalid_topic_is_refused_and_not_created(fields: dict[str, str], code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            before = dict(harness.broker.state.topics.table)
            answer = await client.create_topic(**fields)
            assert answer.code == code, answer
            assert answer.remark
            assert harness.broker.state.topics.table == before

    run(scenario())


def test_topics_survive_a_restart_in_the_form_that_apache_writes() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            await (await harness.client()).create_topic(order="true")
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


def test_all_topics_are_listed_the_brokers_own_included() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            body = encode_topic_config_list([TopicConfig(topic_name=name) for name in "AB"])
            answer = await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            assert answer.code == 0
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            topics = decode_topic_table(answer.body).topics
            brokers_own = {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "b0"}
            assert {"A", "B"} | brokers_own <= topics.keys()
            assert topics["TBW102"].perm == 7
            answer = await client.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            assert "SELF_TEST_TOPIC" in decode_topic_list(answer.body)

    run(scenario())


def test_pulls_held_on_a_topic_are_answered_when_it_is_deleted() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            waiting = held_pull(client, "T", queue_offset=1)
            await until_held(harness, 1)
            await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())


def test_one_request_creates_a_bounded_number_of_topics() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            many = [TopicConfig(topic_name=f"T{number}") for number in range(501)]
            code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
            refused = await client.call(code, None, encode_topic_config_list(many))
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert "501 topics in one request, where 500 may be" in str(refused.remark)
            assert await config_of(client, "T0") is None
            taken = await client.call(code, None, encode_topic_config_list(many[1:]))
            assert taken.code == 0

    run(scenario())


def test_a_broker_has_a_bounded_number_of_topics_however_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, table = await harness.client(), harness.broker.state.topics.table
            await client.send("T")
            monkeypatch.setattr("cometmq.broker.cluster.topics.TOPICS_MAX", len(table) + 1)
            two = encode_topic_config_list([TopicConfig(topic_name=name) for name in "AB"])
            code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
            refused = await client.call(code, None, two)
            assert "topics, the limit is" in str(refused.remark)
            assert (await client.create_topic("A")).code == 0
            assert (await client.create_topic("A", writeQueueNums="4")).code == 0
            for answer in (await client.create_topic("B"), await client.send("B")):
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "topics, the limit is" in str(answer.remark)
            assert "B" not in table
            assert (await client.beat("CG", "T")).code == 0
            assert "%RETRY%CG" in table, "a group's own topics are made in any case"

    run(scenario())
