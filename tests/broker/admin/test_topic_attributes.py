"""What a topic may be made of: attributes, message types, the mark of global order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.harness import new_disk, run, running
from cometmq.broker.admin.topic_attributes import changed
from cometmq.errors import Reject
from cometmq.model.topic import TopicConfig
from cometmq.wire.bodies.topic import decode_topic_config, encode_topic_config_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import CreateTopicRequestHeader, GetTopicConfigRequestHeader

if TYPE_CHECKING:
    from broker.commands import Client
    from cometmq.wire.command import Command

MARK = "+comet.order=global"


async def make(client: Client, topic: str, attributes: str = "", **more: Any) -> Command:
    shape = {"read_queue_nums": 1, "write_queue_nums": 1, "perm": 6, **more}
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", attributes=attributes, **shape
    )
    return await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def shape_of(client: Client, topic: str) -> TopicConfig:
    header = GetTopicConfigRequestHeader(topic=topic)
    return decode_topic_config((await client.call(RequestCode.GET_TOPIC_CONFIG, header)).body)


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (None, "+message.type=FIFO", {"message.type": "FIFO"}),
        (None, "+message.type=PRIORITY,", {"message.type": "PRIORITY"}),
        (None, "+queue.type=SimpleCQ,+message.type=NORMAL", None),
        ({"message.type": "FIFO"}, "", {"message.type": "FIFO"}),
        ({"message.type": "FIFO"}, "-message.type", {}),
        ({"message.type": "FIFO", "theirs": "x"}, "+message.type=DELAY", None),
    ],
)
def test_attributes_change_as_written(
    before: dict[str, str] | None, text: str, after: dict[str, str] | None
) -> None:
    given = dict(part[1:].split("=") for part in text.split(",") if "=" in part)
    assert changed(before, text) == (after if after is not None else {**(before or {}), **given})


@pytest.mark.parametrize(
    ("before", "text", "code"),
    [
        (None, "+message.type=MIXED", ResponseCode.INVALID_PARAMETER),
        (None, "+message.type=fifo", ResponseCode.SYSTEM_ERROR),
        (None, "+message.type=", ResponseCode.SYSTEM_ERROR),
        (None, "-message.type", ResponseCode.SYSTEM_ERROR),
        (None, "message.type=FIFO", ResponseCode.SYSTEM_ERROR),
        (None, "+foo=bar", ResponseCode.SYSTEM_ERROR),
        (None, "+", ResponseCode.SYSTEM_ERROR),
        (None, "+message.type=FIFO,+message.type=NORMAL", ResponseCode.SYSTEM_ERROR),
        (None, "+comet.order=keys", ResponseCode.SYSTEM_ERROR),
        ({}, "-message.type", ResponseCode.SYSTEM_ERROR),
        ({}, "+queue.type=SimpleCQ", ResponseCode.SYSTEM_ERROR),
        ({"queue.type": "SimpleCQ"}, "-queue.type", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_wrong_change_is_refused_with_rocketmqs_code(
    before: dict[str, str] | None, text: str, code: int
) -> None:
    with pytest.raises(Reject) as refused:
        changed(before, text)
    assert refused.value.code == code


def test_mixed_topics_can_be_switched_on() -> None:
    async def scenario() -> None:
        async with running(enable_mixed_message_type=True) as harness:
            client = await harness.client()
            assert (await make(client, "M", "+message.type=MIXED")).code == 0
            assert (await shape_of(client, "M")).attributes == {"message.type": "MIXED"}

    run(scenario())


def test_the_type_of_a_topic_binds_no_sender_as_with_rocketmqs_broker() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for kind in ("FIFO", "DELAY", "TRANSACTION"):
                await make(client, kind, f"+message.type={kind}")
                assert (await client.send(kind)).code == 0

    run(scenario())


def test_a_topic_in_global_order_refuses_to_grow_until_its_mark_is_taken_off() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            two = {"read_queue_nums": 2, "write_queue_nums": 2}
            assert (await make(client, "L", MARK, **two)).code == ResponseCode.INVALID_PARAMETER
            assert (await make(client, "L", MARK, order=True)).code == 0
            for wrong in (two, {"write_queue_nums": 2}, {"read_queue_nums": 2}):
                refused = await make(client, "L", **wrong)
                assert refused.code == ResponseCode.INVALID_PARAMETER
                assert "one queue" in (refused.remark or "")
            wide = TopicConfig(topic_name="L", read_queue_nums=2, write_queue_nums=2)
            body = encode_topic_config_list([wide])
            many = await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            assert many.code == ResponseCode.INVALID_PARAMETER
            assert (await make(client, "L", perm=4)).code == 0
            assert (await shape_of(client, "L")).attributes == {"comet.order": "global"}
        async with running(disk=disk) as harness:
            client = await harness.client()
            assert (await make(client, "L", **two)).code == ResponseCode.INVALID_PARAMETER
            assert (await make(client, "L", "-comet.order", **two)).code == 0
            assert (await shape_of(client, "L")).write_queue_nums == 2

    run(scenario())


def test_a_property_that_only_brokers_set_and_a_level_that_is_none_are_refused() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):  # the third takes the fast path, if any does
                assert (await client.send("T")).code == 0
                inner = await client.send("T", properties={"INNER_NUM": "3"})
                assert inner.code == ResponseCode.MESSAGE_ILLEGAL
                level = await client.send("T", properties={"DELAY": "x"})
                assert level.code == ResponseCode.SYSTEM_ERROR
            assert (await client.send("T", properties={"DELAY": "-1"})).code == 0

    run(scenario())


def test_a_retry_of_an_unknown_group_makes_the_group_where_that_is_allowed() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            assert (await client.send("%RETRY%new")).code == 0
            assert harness.broker.state.groups.get("new") is not None
        async with running(auto_create_subscription_group=False) as harness:
            client = await harness.client()
            answer = await client.send("%RETRY%new")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run(scenario())


def test_attributes_in_a_list_of_topics_are_checked_and_kept_as_those_of_one_topic() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()

            async def put(**given: str) -> Command:
                attributes = {name.replace("_", "."): value for name, value in given.items()}
                body = encode_topic_config_list(
                    [TopicConfig(topic_name="A", attributes=attributes)]
                )
                return await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

            refused = await put(no_such="1")
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "the attribute no.such is not supported" in str(refused.remark)
            mixed = await put(message_type="MIXED")
            assert mixed.code == ResponseCode.INVALID_PARAMETER
            assert (await put(queue_type="SimpleCQ", message_type="FIFO")).code == 0
            kept = {"queue.type": "SimpleCQ", "message.type": "FIFO"}
            for again in ({}, {"queue_type": "SimpleCQ"}, {"+message_type": "FIFO"}):
                assert (await put(**again)).code == 0
                assert (await shape_of(client, "A")).attributes == kept
            assert (await put(**{"-message_type": ""})).code == 0
            assert (await shape_of(client, "A")).attributes == {"queue.type": "SimpleCQ"}

    run(scenario())
