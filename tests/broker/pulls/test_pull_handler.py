"""The checks of a reader, in RocketMQ's order and with its codes, and what each offset finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import Harness, heartbeat, properties_of, records, subscription
from broker.harness import run, running
from cometmq.model.subscription import MessageModel
from cometmq.store.get_result import GetStatus
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from cometmq.wire.command import Command

SUBSCRIBED = 0
"""The sysFlag of a pull that relies on its heartbeat."""


def ends(answer: Command) -> tuple[int, int, int]:
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    next_offset, first, last = (int(answer.ext[name]) for name in names)
    return next_offset, first, last


async def filled(harness: Harness, count: int = 3, topic: str = "T") -> None:
    client = await harness.client()
    for number in range(count):
        tags = {"TAGS": "AB"[number % 2], "UNIQ_KEY": f"K{number}"}
        await client.send(topic, b"%d" % number, properties=tags)


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (0, ResponseCode.SUCCESS, 3),
        (2, ResponseCode.SUCCESS, 3),
        (3, ResponseCode.PULL_NOT_FOUND, 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_each_offset_is_answered_with_where_to_go_on(
    offset: int, code: int, next_offset: int
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness)
            answer = await (await harness.client()).pull("T", queue_offset=offset)
            assert answer.code == code, answer
            assert ends(answer) == (next_offset, 0, 3)
            assert answer.ext["suggestWhichBrokerId"] == "0"
            assert answer.remark in GetStatus.__members__

    run(scenario())


def test_an_empty_queue_is_not_found_at_0_and_moved_elsewhere() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness)
            client = await harness.client()
            answer = await client.pull("T", queue_id=3)
            assert (answer.code, ends(answer)) == (ResponseCode.PULL_NOT_FOUND, (0, 0, 0))
            answer = await client.pull("T", queue_id=3, queue_offset=5)
            assert (answer.code, ends(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 0))

    run(scenario())


def test_tags_are_filtered_before_the_messages_are_read() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness, 4)
            client = await harness.client()
            answer = await client.pull("T", subscription="B || C")
            assert [record.body for record in records(answer)] == [b"1", b"3"]
            answer = await client.pull("T", subscription="C")
            assert (answer.code, ends(answer)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 4)

    run(scenario())


def test_the_heartbeats_subscription_filters_when_the_pull_brings_none() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness, 4)
            client = await harness.client()
            await client.beat("CG", subscriptions=(subscription("T", "A"),))
            answer = await client.pull("T", sys_flag=SUBSCRIBED)
            assert [properties_of(record)["TAGS"] for record in records(answer)] == ["A", "A"]

    run(scenario())


def test_a_pull_takes_no_more_than_it_asked_for() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness, 40)
            client = await harness.client()
            assert len(records(await client.pull("T", max_msg_nums=2))) == 2
            assert len(records(await client.pull("T", max_msg_nums=100))) == 32
            assert len(records(await client.pull("T", max_msg_bytes=1))) == 1

    run(scenario())


def test_a_reader_that_takes_large_pulls_gets_more_and_within_what_it_asked_for() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness, 80)
            client = await harness.client()
            large = await client.pull("T", max_msg_nums=100, is_large=True)
            assert [record.queue_offset for record in records(large)] == list(range(80))
            assert ends(large) == (80, 0, 80)
            asked = {"max_msg_nums": 50, "queue_offset": 7, "is_large": True}
            assert len(records(await client.pull("T", **asked))) == 50
            assert len(records(await client.pull("T", **asked, max_msg_bytes=1000))) < 8
            assert len(records(await client.pull("T", **asked, subscription="B"))) == 37
            assert len(records(await client.pull("T", max_msg_nums=100, is_large=False))) == 32
            asked = {"max_msg_nums": 32, "large_count": 70}
            assert len(records(await client.pull("T", **asked, is_large=True))) == 70
            assert len(records(await client.pull("T", **asked))) == 32

    run(scenario())


def test_a_pull_commits_its_offset_but_not_when_it_is_refused() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await filled(harness)
            client, offsets = await harness.client(), harness.broker.state.offsets
            await client.pull("T", sys_flag=4, commit_offset=1)
            assert offsets.committed("CG", "T", 0) == -1
            await client.pull("T", sys_flag=5, commit_offset=2)
            assert offsets.committed("CG", "T", 0) == 2
            await client.pull("T", sys_flag=5, commit_offset=3, queue_id=9)
            assert offsets.committed("CG", "T", 9) == -1
            assert offsets.pulled("CG", "T", 0) == 3

    run(scenario())


def refusal(code: int, forbidden: int | None = None, **case: Any) -> None:
    """After `prepare` the pull is answered with the code."""
    settings, prepare = case.pop("settings", {}), case.pop("prepare", None)

    async def scenario() -> None:
        async with running(**settings) as harness:
            await filled(harness)
            client = await harness.client()
            if prepare:
                await prepare(harness, client)
            answer = await client.pull(case.pop("topic", "T"), **case)
            assert answer.code == code, answer
            assert answer.remark
            assert answer.ext.get("forbiddenType") == (
                None if forbidden is None else str(forbidden)
            )

    run(scenario())


def test_a_pull_from_a_broker_without_read_permission_is_refused() -> None:
    refusal(ResponseCode.NO_PERMISSION, 1, settings={"broker_permission": 2})


def test_a_pull_of_an_unknown_group_is_refused_where_none_is_made() -> None:
    settings = {"auto_create_subscription_group": False}
    refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, settings=settings)


def test_a_pull_of_a_group_with_a_bad_name_is_refused() -> None:
    refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, consumer_group="a b")


def test_a_pull_of_a_group_that_may_not_consume_is_refused() -> None:
    async def prepare(harness: Harness, _client: object) -> None:
        groups = harness.broker.state.groups
        groups.put(replace(groups.admit("CG"), consume_enable=False))

    refusal(ResponseCode.NO_PERMISSION, 2, prepare=prepare)


def test_a_pull_of_an_unknown_topic_is_refused_and_never_makes_it() -> None:
    refusal(ResponseCode.TOPIC_NOT_EXIST, topic="Nope")


def test_a_pull_of_a_topic_without_read_permission_is_refused() -> None:
    async def prepare(harness: Harness, _client: object) -> None:
        topics = harness.broker.state.topics
        topics.put(replace(topics.table["T"], perm=2))

    refusal(ResponseCode.NO_PERMISSION, 3, prepare=prepare)


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_pull_of_a_queue_that_does_not_exist_is_refused(queue_id: int) -> None:
    refusal(ResponseCode.INVALID_PARAMETER, queue_id=queue_id)


def test_a_pull_of_a_group_without_members_is_refused() -> None:
    refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, sys_flag=SUBSCRIBED)


def test_a_pull_of_a_topic_that_the_group_has_not_subscribed_is_refused() -> None:
    async def prepare(_harness: Harness, client: Any) -> None:
        await client.beat("CG", "Other")

    refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, sys_flag=SUBSCRIBED, prepare=prepare)


def test_a_pull_that_is_ahead_of_its_subscription_is_refused() -> None:
    async def prepare(_harness: Harness, client: Any) -> None:
        await client.beat("CG", subscriptions=(subscription("T", version=5),))
        assert (await client.pull("T", sys_flag=SUBSCRIBED, sub_version=5)).code == 0

    refusal(
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        sys_flag=SUBSCRIBED,
        sub_version=6,
        prepare=prepare,
    )


def test_a_broadcasting_pull_is_refused_where_that_is_switched_off() -> None:
    async def prepare(harness: Harness, client: Any) -> None:
        groups = harness.broker.state.groups
        groups.put(replace(groups.admit("CG"), consume_broadcast_enable=False))
        await client.beat("CG", "T", message_model=MessageModel.BROADCASTING)

    refusal(ResponseCode.NO_PERMISSION, 4, sys_flag=SUBSCRIBED, prepare=prepare)


def test_a_pull_of_a_topic_forbidden_to_the_group_is_refused() -> None:
    async def prepare(harness: Harness, client: Any) -> None:
        harness.broker.state.groups.forbidden["CG"] = {"T": 4}
        await client.beat("CG", "T")

    refusal(ResponseCode.NO_PERMISSION, 5, sys_flag=SUBSCRIBED, prepare=prepare)


def test_sql_is_refused_with_the_pull_and_with_the_heartbeat() -> None:
    async def prepare(_harness: Harness, client: Any) -> None:
        sql = replace(subscription("T", "a > 1"), expression_type="SQL92")
        beat = heartbeat("CG", subscriptions=(sql,))
        assert (await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))).code == 0
        assert (await client.pull("T", sys_flag=SUBSCRIBED)).code == ResponseCode.SYSTEM_ERROR

    refusal(
        ResponseCode.SYSTEM_ERROR,
        expression_type="SQL92",
        subscription="a > 1",
        prepare=prepare,
    )


def test_a_refusal_has_no_offsets_as_with_rocketmq() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.pull("nowhere")
            assert (answer.code, answer.ext) == (ResponseCode.TOPIC_NOT_EXIST, {})

    run(scenario())


def test_a_subscription_of_bars_alone_is_refused() -> None:
    refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, subscription="||")


def test_an_answer_of_the_greatest_size_comes_whole_with_others_around_it() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for number in range(31):
                assert (await client.send("T", b"%02d" % number + bytes(8_000))).code == 0
            answers = await asyncio.gather(*(client.pull("T") for _ in range(5)))
            for answer in answers:
                assert len(answer.body) > 240_000
                assert [record.body[:2] for record in records(answer)] == [
                    b"%02d" % number for number in range(31)
                ]

    run(scenario())
