"""What a heartbeat makes, whom it tells, and how clients are forgotten."""

from __future__ import annotations

import asyncio

import pytest

from broker.commands import Client, heartbeat, subscription
from broker.harness import new_disk, run, running
from cometmq.model.subscription import (
    ConsumeFromWhere,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from cometmq.wire.bodies.heartbeat import (
    CheckClient,
    encode_check_client,
    encode_heartbeat,
    heartbeat_fingerprint,
)
from cometmq.wire.bodies.name_lists import decode_consumer_list
from cometmq.wire.codes import RequestCode, ResponseCode


async def members(client: Client, group: str = "CG") -> list[str]:
    answer = await client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    return sorted(decode_consumer_list(answer.body)) if answer.code == 0 else []


async def notified(client: Client, group: str = "CG") -> None:
    """The broker notifies the client that the group changed."""
    command = await client.asked_next()
    assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert command.is_oneway
    assert command.opaque != 0
    assert command.ext == {"consumerGroup": group}


def test_a_heartbeat_makes_the_group_and_its_retry_topic_before_it_is_answered() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.beat("CG", "T")
            assert answer.code == 0
            assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
            assert answer.version >= 401
            retry = harness.broker.state.topics.get("%RETRY%CG")
            assert retry is not None
            assert (retry.write_queue_nums, retry.perm) == (1, 6)
            assert harness.broker.state.groups.get("CG") is not None
            assert await members(client) == ["c1"]

    run(scenario())


def test_all_members_are_notified_of_a_new_one_itself_included() -> None:
    async def scenario() -> None:
        async with running() as harness:
            first, second = await harness.client(), await harness.client()
            await first.beat("CG", "T")
            await notified(first)
            await second.beat("CG", "T", client_id="c2")
            await notified(first)
            await notified(second)
            await second.beat("CG", "T", client_id="c2")
            assert first.asked.empty()
            assert second.asked.empty()
            assert await members(first) == ["c1", "c2"]

    run(scenario())


def test_members_are_notified_when_one_unregisters_or_closes_its_connection() -> None:
    async def scenario() -> None:
        async with running() as harness:
            clients = [await harness.client() for _ in range(3)]
            for number, client in enumerate(clients):
                await client.beat("CG", "T", client_id=f"c{number}")
            stays, leaves, breaks = clients
            for _ in range(3):
                await notified(stays)
            await leaves.call(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="CG")
            await notified(stays)
            assert await members(stays) == ["c0", "c2"]
            breaks.close()
            await notified(stays)
            assert await members(stays) == ["c0"]

    run(scenario())


def test_the_list_of_a_group_without_clients_is_an_error() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="CG")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.body == b""

    run(scenario())


def test_two_connections_of_one_client_are_one_member() -> None:
    async def scenario() -> None:
        async with running() as harness:
            old, new = await harness.client(), await harness.client()
            await old.beat("CG", "T")
            await new.beat("CG", "T")
            assert await members(new) == ["c1"]
            old.close()
            await notified(new)
            await notified(new)
            assert await members(new) == ["c1"]

    run(scenario())


def test_broadcasting_groups_are_not_notified() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T", message_model=MessageModel.BROADCASTING)
            assert client.asked.empty()

    run(scenario())


def test_the_latest_heartbeat_sets_how_the_group_consumes() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            await client.beat(
                "CG",
                "T",
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            group = harness.broker.state.clients.consumers["CG"]
            assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
            assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    run(scenario())


def test_a_subscription_is_replaced_by_a_higher_version_only() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            group = harness.broker.state.clients.consumers
            for expression, version, kept in (("A", 5, "A"), ("B", 5, "A"), ("C", 6, "C")):
                await client.beat("CG", subscriptions=(subscription("T", expression, version),))
                assert group["CG"].subscriptions["T"].sub_string == kept

    run(scenario())


def test_topics_missing_from_a_heartbeat_leave_the_group_and_members_are_notified() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T", "U")
            await notified(client)
            await client.beat("CG", "U")
            await notified(client)
            assert list(harness.broker.state.clients.consumers["CG"].subscriptions) == ["U"]

    run(scenario())


def test_a_light_heartbeat_keeps_the_subscriptions_of_the_full_one() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            mark = heartbeat_fingerprint(heartbeat("CG", "T"))
            first = await client.beat("CG", "T", heartbeat_fingerprint=mark)
            second = await client.beat("CG", "T", heartbeat_fingerprint=mark)
            light = await client.beat("CG", heartbeat_fingerprint=mark, without_sub=True)
            other = await client.beat("CG", heartbeat_fingerprint=mark + 1, without_sub=True)
            said = [answer.ext["IS_SUB_CHANGE"] for answer in (first, second, light, other)]
            assert said == ["false", "false", "false", "true"]
            assert list(harness.broker.state.clients.consumers["CG"].subscriptions) == ["T"]

    run(scenario())


def test_a_client_is_asked_for_a_full_heartbeat_where_the_broker_may_not_know_its_topics() -> None:
    mark = heartbeat_fingerprint(heartbeat("CG", "T"))

    async def scenario() -> None:
        async with running() as harness:
            one, two = await harness.client(), await harness.client()

            async def light() -> str:
                answer = await one.beat("CG", heartbeat_fingerprint=mark, without_sub=True)
                return answer.ext["IS_SUB_CHANGE"]

            assert await light() == "true", "the broker has just been started"
            assert harness.broker.state.clients.consumers["CG"].subscriptions == {}
            full = await one.beat("CG", "T", heartbeat_fingerprint=mark)
            assert full.ext["IS_SUB_CHANGE"] == "false"
            old = await two.beat("CG", "U", client_id="c2")
            assert old.ext["IS_SUB_CHANGE"] == "true", "a beat without a fingerprint is full"
            assert await light() == "true", "the other one's beat took the group's topics over"

    run(scenario())


def test_a_silent_client_is_forgotten_and_its_connection_closed() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            clients = harness.broker.state.clients
            assert clients.sweep() == []
            (peer,) = clients.consumers["CG"].members
            clients.silence_ms = -1
            assert clients.sweep() == [peer]
            assert clients.consumers == {}
            assert clients.producers == {}

    run(scenario())


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_client_is_silent_as_long_when_the_clock_is_set(by_ms: int) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, channel_expired_timeout_ms=100_000) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            clients = harness.broker.state.clients
            disk.clock.step(by_ms)
            await asyncio.sleep(90)
            assert clients.sweep() == []
            await asyncio.sleep(25)
            assert "CG" not in clients.consumers

    run(scenario())


def test_a_broken_heartbeat_is_answered_and_the_connection_stays() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.call(RequestCode.HEART_BEAT, None, b"{oh dear")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (await client.beat("CG", "T")).code == 0

    run(scenario())


def test_a_heartbeat_with_a_group_of_a_bad_name_is_answered_and_the_group_skipped() -> None:
    async def scenario() -> None:
        async with running(auto_create_subscription_group=False) as harness:
            client = await harness.client()
            assert (await client.beat("CG", "T")).code == 0
            assert await members(client) == []

    run(scenario())


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("SQL92", ResponseCode.SYSTEM_ERROR)])
def test_a_filter_is_checked_before_it_is_used(kind: str, code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            wanted = subscription("T", "A")
            object.__setattr__(wanted, "expression_type", kind)
            body = encode_check_client(CheckClient("c1", "CG", wanted))
            answer = await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
            assert answer.code == code

    run(scenario())


def test_a_long_heartbeat_is_taken_and_a_longer_one_refused() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for count, code in ((2_000, 0), (20_000, 1)):
                topics = [f"T{number}" for number in range(count)]
                assert (await client.beat("long", *topics)).code == code
            group = harness.broker.state.clients.consumers["long"]
            assert len(group.subscriptions) == 2_000

    run(scenario())


def test_a_heartbeat_that_names_too_much_is_refused_with_the_limit() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.beat("CG", *[f"t{number}" for number in range(2_001)])
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert "names 2001 subscriptions, the limit is 2000" in answer.remark
            assert harness.broker.state.clients.consumers == {}
            assert (await client.beat("CG", *[f"t{number}" for number in range(2_000)])).code == 0
            found = harness.broker.state.clients.consumers["CG"]
            assert len(found.subscriptions) == 2_000
            beat = HeartbeatData(
                client_id="c", producer_groups=tuple(f"P{number}" for number in range(1_001))
            )
            answer = await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "names 1001 groups, the limit is 1000" in (answer.remark or "")

    run(scenario())
