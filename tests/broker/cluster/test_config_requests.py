"""Settings of a running broker: shown, changed, kept, and obeyed at once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.commands import held_pull, until_held
from broker.harness import new_disk, run, running
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from broker.commands import Client
    from cometmq.wire.command import Command


async def change(client: Client, text: str) -> Command:
    return await client.call(Code.UPDATE_BROKER_CONFIG, None, text.encode())


async def settings_of(client: Client) -> dict[str, str]:
    answer = await client.call(Code.GET_BROKER_CONFIG)
    assert set(json.loads(answer.ext["version"])) == {"counter", "stateVersion", "timestamp"}
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


def test_settings_are_returned_as_a_properties_file() -> None:
    async def scenario() -> None:
        async with running() as harness:
            found = await settings_of(await harness.client())
            assert list(found) == sorted(found)
            assert found["brokerName"] == "b0"
            assert found["autoCreateTopicEnable"] == "true"
            assert found["flushDiskType"] == "ASYNC_FLUSH"

    run(scenario())


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("brokerName=x", ResponseCode.SYSTEM_ERROR, "brokerName is read at the start only"),
        ("brokerPermision=4", ResponseCode.SYSTEM_ERROR, "did you mean brokerPermission?"),
        ("brokerPermission=x", ResponseCode.SYSTEM_ERROR, "brokerPermission is 'x'"),
        ("brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "cannot be changed from outside"),
    ],
)
def test_what_cannot_change_is_refused_and_nothing_changes(
    text: str, code: int, remark: str
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            before = await settings_of(client)
            answer = await change(client, f"longPollingEnable=false\n{text}\n")
            assert answer.code == code
            assert remark in (answer.remark or "")
            assert await settings_of(client) == before

    run(scenario())


def test_a_change_is_written_into_the_settings_file_and_versions_grow() -> None:
    conf, disk = Path("/etc/broker.conf"), new_disk()

    async def scenario() -> None:
        disk.make_dir(conf.parent)
        disk.write(conf, b"# mine\nbrokerName=b0\nlongPollingEnable=true\n")
        async with running(disk=disk, conf=conf) as harness:
            client = await harness.client()
            answer = await change(client, "longPollingEnable=false\nfileReservedTime=48\n")
            assert (answer.code, answer.remark) == (0, None)
            assert (await settings_of(client))["fileReservedTime"] == "48"
            version = json.loads((await client.call(Code.GET_BROKER_CONFIG)).ext["version"])
            assert version["counter"] == 1

    run(scenario())
    assert disk.read(conf) == (
        b"# mine\nbrokerName=b0\nlongPollingEnable=false\nfileReservedTime=48\n"
    )


def test_without_a_settings_file_the_answer_says_how_long_a_change_lasts() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await change(client, "longPollingEnable=false\nsendMessageThreadPoolNums=4\n")
            assert answer.code == 0
            assert "sendMessageThreadPoolNums has no effect here" in (answer.remark or "")
            assert "kept until the broker stops" in (answer.remark or "")

    run(scenario())


def test_a_file_that_cannot_be_written_stops_the_change() -> None:
    async def scenario() -> None:
        async with running(conf=Path("/gone/broker.conf")) as harness:
            client = await harness.client()
            answer = await change(client, "longPollingEnable=false\n")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await settings_of(client))["longPollingEnable"] == "true"

    run(scenario())


def test_the_brokers_permission_is_obeyed_at_once_and_registered_at_name_servers() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, broker = await harness.client(), harness.broker
            await client.send("T")
            version = broker.state.topics.version
            assert (await change(client, "brokerPermission=2\n")).code == 0
            assert (await client.pull("T")).code == ResponseCode.NO_PERMISSION
            assert broker.state.topics.version != version, "name servers take it as news"
            assert broker._registered_topics().topics["T"].perm == 2
            assert (await change(client, "brokerPermission=6\n")).code == 0
            assert (await client.pull("T")).code == 0
            assert broker._registered_topics().topics["T"].perm == 6

    run(scenario())


def test_sizes_and_creation_are_obeyed_by_the_next_request() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(4):  # the way of sends is known by now
                assert (await client.send("T", b"x" * 200)).code == 0
            assert (await change(client, "maxMessageSize=100\n")).code == 0
            for _ in range(2):
                answer = await client.send("T", b"x" * 200)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert (await client.send("T", b"x" * 100)).code == 0
            assert (await change(client, "maxMessageSize=300\n")).code == 0
            assert (await client.send("T", b"x" * 200)).code == 0
            await change(client, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")
            assert (await client.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
            answer = await client.pull("T", consumer_group="NewGroup")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run(scenario())


def test_pulls_obey_new_limits() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(5):
                await client.send("T")
            await change(client, "maxTransferCountOnMessageInMemory=2\n")
            answer = await client.pull("T")
            assert int(answer.ext["nextBeginOffset"]) == 2
            await change(client, "longPollingEnable=false\nshortPollingTimeMills=50\n")
            waiting = held_pull(client, "T", queue_offset=5)
            await until_held(harness, 1)
            async with asyncio.timeout(5):
                assert (await waiting).code == ResponseCode.PULL_NOT_FOUND

    run(scenario())
