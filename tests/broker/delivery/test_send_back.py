"""Messages sent back: the next attempt by way of a delay level, and dead letters after the last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import Client, properties_of, received, records
from broker.delivery.send_back_commands import send_and_pull, send_back
from broker.harness import run, running
from cometmq.model.group import GroupRetryPolicy, SubscriptionGroupConfig
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.lock import LockRequest, encode_lock_request
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from cometmq.wire.command import Command
    from cometmq.wire.records.log_record import StoredRecord

SHORT = {"message_delay_level": "1s 1s 1s 1s 1s"}
RETRY, DEAD = "%RETRY%CG", "%DLQ%CG"


def test_a_message_sent_back_comes_again_in_the_retry_topic() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client, flag=3, properties={"TAGS": "A", "x": "y"})
            assert (await send_back(client, record)).code == 0
            (again,) = await received(client, 1, RETRY)
            assert (again.body, again.flag, again.reconsume_times) == (b"hard", 3, 1)
            assert again.born_ms == record.born_ms
            shown = properties_of(again)
            assert shown["RETRY_TOPIC"] == "T"
            assert shown["DELAY"] == "3"
            assert (shown["TAGS"], shown["x"], shown["UNIQ_KEY"]) == ("A", "y", "K1")
            host = record.store_host.hex().upper()
            assert shown["ORIGIN_MESSAGE_ID"] == f"{host}{record.phy_offset:016X}"

    run(scenario())


def test_the_level_rises_with_the_attempts_unless_one_is_asked_for() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            levels = []
            for count, wanted in enumerate((0, 0, 1)):
                assert (await send_back(client, record, delayLevel=wanted)).code == 0
                record = (await received(client, count + 1, RETRY))[count]
                levels.append(properties_of(record)["DELAY"])
            assert levels == ["3", "4", "1"]
            assert record.reconsume_times == 3

    run(scenario())


def test_the_last_attempt_ends_among_the_dead_letters() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            await client.send("T", b"hard", queue_id=2)
            (record,) = records(await client.pull("T", queue_id=2))
            reason = "ValueError: no arrival time"
            answer = await send_back(client, record, maxReconsumeTimes=1, dlqReason="not yet")
            assert answer.code == 0
            (second,) = await received(client, 1, RETRY)
            assert properties_of(second)["DLQ_REASON"] == "not yet"
            answer = await send_back(client, second, maxReconsumeTimes=1, dlqReason=reason)
            assert answer.code == 0
            (dead,) = records(await client.pull(DEAD))
            assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"hard", 2, 0)
            shown = properties_of(dead)
            assert shown["DLQ_ORIGIN_TOPIC"] == "T"
            assert shown["DLQ_ORIGIN_MESSAGE_ID"] == "K1"
            assert shown["DLQ_REASON"] == reason
            assert shown["DLQ_ATTEMPTS"] == "2"
            assert (shown["DLQ_ORIGIN_QUEUE_ID"], shown["DLQ_ORIGIN_OFFSET"]) == ("2", "0")
            assert shown["RETRY_TOPIC"] == "T"
            assert shown["DELAY"] == "0"
            assert int(shown["DLQ_FAILED_AT"]) >= record.store_ms
            config = harness.broker.state.topics.get(DEAD)
            assert config is not None
            assert (config.write_queue_nums, config.perm) == (1, 6)

    run(scenario())


def test_a_negative_level_gives_up_at_once_and_a_long_reason_is_cut() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            answer = await send_back(client, record, delayLevel=-1, dlqReason="\x01bad\x02" * 200)
            assert answer.code == 0
            (dead,) = records(await client.pull(DEAD))
            assert properties_of(dead)["DLQ_REASON"] == (" bad " * 200)[:512]

    run(scenario())


@pytest.mark.parametrize("size", [32_400, 32_520, 32_616])
def test_a_message_whose_properties_nearly_fill_a_record_is_tried_again_whole(size: int) -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client, properties={"x": "y" * size})
            answer = await send_back(client, record, delayLevel=1, dlqReason="z" * 512)
            assert answer.code == 0, answer
            (again,) = await received(client, 1, RETRY)
            shown = properties_of(again)
            assert (shown["x"], shown["RETRY_TOPIC"]) == ("y" * size, "T")
            assert (shown["UNIQ_KEY"], again.reconsume_times) == ("K1", 1)

    run(scenario())


def test_a_message_that_cannot_be_tried_again_whole_becomes_a_dead_letter_at_once() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client, properties={"x": "y" * 32_640, "a": "b"})
            assert (await send_back(client, record, dlqReason="ValueError")).code == 0
            (dead,) = await client.drain(DEAD)
            shown = properties_of(dead)
            assert shown["DLQ_ORIGIN_MESSAGE_ID"] == shown["UNIQ_KEY"] == "K1"
            assert shown["DLQ_REASON"] == "[without x] ValueError"
            assert (shown["DLQ_ATTEMPTS"], shown["a"]) == ("1", "b")

    run(scenario())


def test_old_clients_get_the_groups_limit() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            groups = harness.broker.state.groups
            groups.put(replace(groups.admit("CG"), retry_max_times=0))
            assert (await send_back(client, record, maxReconsumeTimes=5)).code == 0
            assert records(await client.pull(DEAD)) == []
            groups.put(replace(groups.admit("CG"), retry_max_times=0))
            answer = await send_back_without_limit(client, record)
            assert answer.code == 0
            assert len(records(await client.pull(DEAD))) == 1

    run(scenario())


async def send_back_without_limit(client: Client, record: StoredRecord) -> Command:
    fields = {"offset": str(record.phy_offset), "group": "CG", "delayLevel": "0"}
    return await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)


def test_send_backs_of_unknown_messages_or_groups_are_refused() -> None:
    async def scenario() -> None:
        async with running(**SHORT, auto_create_subscription_group=False) as harness:
            client = await harness.client()
            harness.broker.state.groups.put(SubscriptionGroupConfig(group_name="CG"))
            record = await send_and_pull(client)
            answer = await send_back(client, record, group="Nobody")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            for offset in (record.phy_offset + 1, 10**12, -1):
                answer = await send_back(client, record, offset=offset)
                assert answer.code == ResponseCode.SYSTEM_ERROR, offset
            topics = harness.broker.state.topics
            topics.put(replace(topics.table[RETRY], perm=4))
            assert (await send_back(client, record)).code == ResponseCode.NO_PERMISSION

    run(scenario())


def test_a_send_back_makes_a_group_that_nobody_knew() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            assert (await send_back(client, record, group="Unheard")).code == 0
            assert harness.broker.state.groups.get("Unheard")

    run(scenario())


@pytest.mark.parametrize(
    ("policy", "levels"),
    [
        (GroupRetryPolicy(), ["3", "4", "5"]),
        (GroupRetryPolicy(type="CUSTOMIZED", next_ms=(1, 2, 4_000, 90_000)), ["2", "6", "6"]),
        (GroupRetryPolicy(type="CUSTOMIZED", next_ms=(500,)), ["1", "1", "1"]),
        (
            GroupRetryPolicy(type="EXPONENTIAL", initial_ms=10_000, max_ms=35_000, multiplier=3),
            ["3", "4", "5"],
        ),
        (GroupRetryPolicy(type="EXPONENTIAL", initial_ms=10**9, max_ms=10**10), ["18"] * 3),
    ],
)
def test_a_group_may_have_a_retry_policy_of_its_own(
    policy: GroupRetryPolicy, levels: list[str]
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            groups = harness.broker.state.groups
            groups.put(SubscriptionGroupConfig(group_name="CG", group_retry_policy=policy))
            found = []
            for times in range(3):
                await client.send("T", b"%d" % times, reconsume_times=times)
            for record in await client.drain("T"):
                assert (await send_back(client, record)).code == 0
            for queue_id in range(18):
                waiting = await client.drain("SCHEDULE_TOPIC_XXXX", queue_id=queue_id)
                found += [(one.body, str(queue_id + 1), properties_of(one)) for one in waiting]
            found.sort(key=lambda each: each[0])
            assert [level for _, level, _ in found] == levels
            assert [shown["DELAY"] for _, _, shown in found] == levels
            assert {shown["WAIT"] for _, _, shown in found} == {"false"}
            assert (await send_back(client, record, delayLevel=7)).code == 0
            assert len(await client.drain("SCHEDULE_TOPIC_XXXX", queue_id=6)) == 1, "as asked"

    run(scenario())


def test_a_group_without_retry_queues_loses_what_it_sends_back() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            groups, end = harness.broker.state.groups, harness.broker.store.max_phy_offset
            groups.put(replace(groups.admit("CG"), retry_queue_nums=0))
            assert (await send_back(client, record)).code == 0
            assert harness.broker.store.max_phy_offset == end

    run(scenario())


async def send_to_retry_topic(client: Client, **more: Any) -> Command:
    extra = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "O1", "DELAY": "1", **more.pop("with_", {})}
    return await client.send(RETRY, b"hard", properties=extra, **more)


async def lock_a_queue(client: Client) -> None:
    wanted = LockRequest("CG", "c1", (MessageQueue("T", "b0", 0),))
    answer = await client.call(RequestCode.LOCK_BATCH_MQ, None, encode_lock_request(wanted))
    assert answer.code == 0


def test_a_client_may_send_to_the_retry_topic_itself_until_its_attempts_are_used_up() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            assert (
                await send_to_retry_topic(client, reconsume_times=3, max_reconsume_times=3)
            ).code == 0
            assert len(await received(client, 1, RETRY)) == 1
            assert (
                await send_to_retry_topic(client, reconsume_times=4, max_reconsume_times=3)
            ).code == 0
            (dead,) = records(await client.pull(DEAD))
            shown = properties_of(dead)
            assert (shown["DELAY"], shown["DLQ_ORIGIN_TOPIC"]) == ("-1", "T")

    run(scenario())


def test_while_the_group_holds_a_lock_its_retries_become_dead_letters() -> None:
    async def scenario() -> None:
        async with running(**SHORT) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            await lock_a_queue(client)
            given = {
                "DLQ_REASON": "ValueError",
                "DLQ_ATTEMPTS": "3",
                "DLQ_ORIGIN_QUEUE_ID": "2",
                "DLQ_ORIGIN_OFFSET": "17",
                "DLQ_FAILED_AT": "1700000000000",
            }
            answer = await send_to_retry_topic(client, with_=given)
            assert answer.code == 0
            (dead,) = records(await client.pull(DEAD))
            shown = properties_of(dead)
            assert {name: shown[name] for name in given} == given
            assert shown["DLQ_ORIGIN_MESSAGE_ID"] == "K1"

    run(scenario())


def test_a_retry_topic_of_an_unknown_group_is_refused() -> None:
    async def scenario() -> None:
        settings = {**SHORT, "auto_create_subscription_group": False}
        async with running(**settings) as harness:
            client = await harness.client()
            answer = await send_to_retry_topic(client)
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run(scenario())
