"""What a topic may be made of: attributes, message types, the mark of global order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.rig import Client, run, running
from cometmq.broker.admin.topic_attributes import changed
from cometmq.errors import Reject
from cometmq.model.topic import TopicConfig
from cometmq.wire.bodies.topic import decode_topic_config, encode_topic_config_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import CreateTopicRequestHeader, GetTopicConfigRequestHeader

if TYPE_CHECKING:
    from pathlib import Path

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
        (None, "+message.type=LITE,", {"message.type": "LITE"}),
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


def test_mixed_topics_can_be_switched_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, enable_mixed_message_type=True) as rig:
            client = await rig.client()
            assert (await make(client, "M", "+message.type=MIXED")).code == 0
            assert (await shape_of(client, "M")).attributes == {"message.type": "MIXED"}

    run(story())


def test_the_type_of_a_topic_binds_no_sender_as_with_rocketmqs_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as rig:
            client = await rig.client()
            for kind in ("FIFO", "DELAY", "TRANSACTION"):
                await make(client, kind, f"+message.type={kind}")
                assert (await client.send(kind)).code == 0

    run(story())


def test_a_topic_in_global_order_refuses_to_grow_until_its_mark_is_taken_off(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with running(tmp_path) as rig:
            client = await rig.client()
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
        async with running(tmp_path) as rig:
            client = await rig.client()
            assert (await make(client, "L", **two)).code == ResponseCode.INVALID_PARAMETER
            assert (await make(client, "L", "-comet.order", **two)).code == 0
            assert (await shape_of(client, "L")).write_queue_nums == 2

    run(story())


def test_a_property_that_only_brokers_heed_and_a_level_that_is_none_are_refused(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with running(tmp_path) as rig:
            client = await rig.client()
            for _ in range(3):  # the third goes the short way, if any does
                assert (await client.send("T")).code == 0
                inner = await client.send("T", properties={"INNER_NUM": "3"})
                assert inner.code == ResponseCode.MESSAGE_ILLEGAL
                level = await client.send("T", properties={"DELAY": "x"})
                assert level.code == ResponseCode.SYSTEM_ERROR
            assert (await client.send("T", properties={"DELAY": "-1"})).code == 0

    run(story())


def test_a_retry_of_an_unknown_group_makes_the_group_where_that_is_allowed(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "a") as rig:
            client = await rig.client()
            assert (await client.send("%RETRY%new")).code == 0
            assert rig.broker.state.groups.get("new") is not None
        async with running(tmp_path / "b", auto_create_subscription_group=False) as rig:
            client = await rig.client()
            answer = await client.send("%RETRY%new")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run(story())
