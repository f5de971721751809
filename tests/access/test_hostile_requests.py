"""Each request of both servers, unsigned, wrongly signed, or without the right: nothing happens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from access.signing import (
    ROOT,
    USER,
    as_root,
    as_user,
    connected,
    entry,
    give_rights,
    guarded,
    guarded_name_server,
    signer,
)
from broker.commands import heartbeat, make_topic, properties, send_header, subscription
from broker.harness import new_broker, run
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import TopicConfig
from cometmq.namesrv.app import NameServer
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.bodies.group import encode_group_config, encode_group_config_list
from cometmq.wire.bodies.heartbeat import CheckClient, encode_check_client, encode_heartbeat
from cometmq.wire.bodies.topic import encode_topic_config_list
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import request
from cometmq.wire.request_signature import Credentials, add_signature

if TYPE_CHECKING:
    from access.signing import Signer
    from broker.commands import Harness
    from cometmq.wire.command import Command

REFUSED = ResponseCode.NO_PERMISSION
WELL_MEANT = properties.encode({"UNIQ_KEY": "K1"}).decode()
FIELDS = {
    **send_header("T").encode(),
    "producerGroup": "PG",
    "consumerGroup": "CG",
    "group": "CG",
    "groupName": "CG",
    "topic": "T",
    "originTopic": "T",
    "topics": "T",
    "cluster": "DefaultCluster",
    "clusterName": "DefaultCluster",
    "brokerName": "b",
    "brokerAddr": "10.0.0.9:10911",
    "brokerId": "0",
    "brokerClusterName": "DefaultCluster",
    "compressed": "false",
    "queueId": "0",
    "offset": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "0",
    "commitOffset": "7",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "1",
    "timestamp": "0",
    "isForce": "true",
    "delayLevel": "0",
    "srcGroup": "CG",
    "destGroup": "CG2",
    "compareGroup": "CG",
    "clientID": "c1",
    "clientId": "c1",
    "key": "K1",
    "maxNum": "1",
    "beginTimestamp": "0",
    "endTimestamp": "9999999999999",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": WELL_MEANT,
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "T",
    "index": "0",
    "count": "1",
    "namespace": "N",
    "value": "V",
    "isOrder": "false",
    "msgId": "7F00000100002A9F" + "0" * 16,
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "username": "planted",
    "subject": "User:user",
    "resource": "Topic:T",
    "readable": "true",
    "dataVersion": "{}",
    "e": "0",
    "i": WELL_MEANT,
}
HEARTBEAT = encode_heartbeat(heartbeat("CG", "T"))
LOCK = json.dumps(
    {
        "consumerGroup": "CG",
        "clientId": "c1",
        "mqSet": [{"topic": "T", "brokerName": "b0", "queueId": 0}],
    }
).encode()
BODIES: dict[int, bytes] = {
    Code.HEART_BEAT: HEARTBEAT,
    Code.CHECK_CLIENT_CONFIG: encode_check_client(CheckClient("c1", "CG", subscription("T"))),
    Code.LOCK_BATCH_MQ: LOCK,
    Code.UNLOCK_BATCH_MQ: LOCK,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: encode_topic_config_list([TopicConfig(topic_name="T2")]),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: encode_group_config(
        SubscriptionGroupConfig(group_name="CG2")
    ),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: encode_group_config_list(
        [SubscriptionGroupConfig(group_name="CG2")]
    ),
    Code.UPDATE_BROKER_CONFIG: b"brokerPermission=4",
    Code.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true",
    Code.AUTH_CREATE_USER: b'{"password":"backdoor","userType":"Super"}',
    Code.AUTH_UPDATE_USER: b'{"password":"backdoor"}',
    Code.AUTH_CREATE_ACL: json.dumps({"policies": [{"entries": [entry("*", "All")]}]}).encode(),
    Code.AUTH_UPDATE_ACL: json.dumps({"policies": [{"entries": [entry("*", "All")]}]}).encode(),
}


def codes_of_broker() -> list[int]:
    found: list[int] = []

    async def scenario() -> None:
        broker = new_broker()
        found.extend(sorted(broker.codes))
        broker.store.abandon()

    run(scenario())
    return found


def codes_of_name_server() -> list[int]:
    return sorted(NameServer.open(NamesrvSettings(listen_port=0, kv_config_path="")).codes)


def command_of(code: int) -> Command:
    """A request of this code that makes sense, were it allowed."""
    command = request(code, 0, None, BODIES.get(code, b"hello"))
    command.ext.update(FIELDS)
    return command


def unsigned(_command: Command) -> str:
    return "username cannot be null."


def of_nobody(command: Command) -> str:
    add_signature(command, Credentials("nobody", ROOT.secret_key))
    return "User:nobody is not found."


def with_another_secret(command: Command) -> str:
    add_signature(command, Credentials(ROOT.access_key, USER.secret_key))
    return "check signature failed."


def without_a_signature(command: Command) -> str:
    command.ext["AccessKey"] = ROOT.access_key
    return "check signature failed."


def truncated(command: Command) -> str:
    add_signature(command, ROOT)
    command.ext["Signature"] = command.ext["Signature"][:-1]
    return "check signature failed."


def of_another_request(command: Command) -> str:
    add_signature(command, ROOT)
    command.ext["topic"] = "U"
    return "check signature failed."


def of_another_body(command: Command) -> str:
    add_signature(command, ROOT)
    command.body += b" "
    return "check signature failed."


def without_the_right(command: Command) -> str:
    add_signature(command, USER)
    return "User:user has no permission"


def strange(command: Command) -> str:
    add_signature(command, ROOT)
    command.ext["Signature"] = "\u20ac" + "=" * 100
    return "check signature failed."


WAYS = [
    unsigned,
    of_nobody,
    with_another_secret,
    without_a_signature,
    truncated,
    of_another_request,
    of_another_body,
    strange,
    without_the_right,
]


async def answer_to(client: Signer, way: Any, code: int) -> None:
    command = command_of(code)
    expected = way(command)
    answer = await client.channel.call(command, 10)
    assert answer.code == REFUSED, (code, answer)
    assert answer.body == b""
    assert (answer.remark or "").startswith(expected), code


def state_of(harness: Harness) -> list[object]:
    """What requests change: what is stored, all tables, the clients, the settings, the users."""
    broker = harness.broker
    state, access = broker.state, broker._handlers._environment.access
    assert access.control is not None
    return [
        broker.store.max_phy_offset,
        dict(state.topics.table),
        state.topics.version,
        dict(state.groups.table),
        {topic: dict(queues) for topic, queues in state.offsets._committed.items()},
        {name: list(group.members) for name, group in state.clients.consumers.items()},
        list(state.clients.producers),
        {group: list(queues) for group, queues in state.locks._groups.items()},
        broker._live.text(),
        access.control.rules,
    ]


@pytest.mark.parametrize("way", WAYS)
def test_the_broker_refuses_each_request_and_nothing_has_changed(way: Any) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root = await as_root(harness)
            await make_topic(harness)
            assert (await root.send("T")).code == 0
            assert (await root.call(Code.HEART_BEAT, None, HEARTBEAT)).code == 0
            # the transaction that 37 would end, and the message that 33 and 36 would get at
            half = send_header("T", properties={"TRAN_MSG": "true", "PGROUP": "PG"}, sys_flag=4)
            assert (await root.call(Code.SEND_MESSAGE_V2, half, b"half")).code == 0
            await give_rights(root, entry("Topic:Other", "All"), entry("Group:Other", "All"))
            stranger = signer(await harness.client(), None)
            before = state_of(harness)
            for code in sorted(harness.broker.codes):
                await answer_to(stranger, way, code)
                assert state_of(harness) == before, Code(code).name

    run(scenario())


@pytest.mark.parametrize("way", WAYS)
def test_one_way_requests_vanish(way: Any) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root = await as_root(harness)
            await make_topic(harness)
            await give_rights(root, entry("Topic:Other", "All"))
            stranger = await harness.client()
            before = state_of(harness)
            for code in sorted(harness.broker.codes):
                command = command_of(code)
                way(command)
                command.flag |= 2
                stranger.channel.oneway(command)
            assert (await root.call(Code.GET_BROKER_RUNTIME_INFO)).code == 0
            assert state_of(harness) == before

    run(scenario())


@pytest.mark.parametrize("way", WAYS)
def test_the_name_server_refuses_each_request_and_nothing_has_changed(way: Any) -> None:
    async def scenario() -> None:
        async with guarded_name_server() as server, connected(server, ROOT) as root:
            await give_rights(root, entry("Topic:Other", "All"), entry("Cluster:Other", "All"))
            for code in sorted(server.codes):
                await answer_to(root, way, code)
            listed = [await root.call(Code.AUTH_LIST_USER), await root.call(Code.AUTH_LIST_ACL)]
            assert [len(json.loads(answer.body)) for answer in listed] == [2, 1]
            assert (await root.call(Code.GET_KVLIST_BY_NAMESPACE, namespace="N")).code != 0
            clusters = await root.call(Code.GET_BROKER_CLUSTER_INFO)
            assert json.loads(clusters.body)["brokerAddrTable"] == {}

    run(scenario())


def test_the_same_requests_of_a_super_user_are_admitted() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            await make_topic(harness)
            root = await as_root(harness)
            await give_rights(root)
            for code in sorted(harness.broker.codes):
                if code != Code.UPDATE_BROKER_CONFIG:
                    command = command_of(code)
                    add_signature(command, ROOT)
                    answer = await root.channel.call(command, 10)
                    assert "permission to access" not in (answer.remark or ""), (code, answer)
                    assert "signature" not in (answer.remark or ""), (code, answer)

    run(scenario())


def test_a_stored_message_is_not_shown_nor_sent_back_by_its_offset_alone() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            await make_topic(harness, "Other")
            await root.send("T")
            at = harness.broker.store.max_phy_offset
            await root.send("Other")
            await give_rights(root, entry("Topic:Other", "Sub"), entry("Group:CG", "Sub"))
            named = {"topic": "Other", "originTopic": "Other", "group": "CG", "delayLevel": "0"}
            for code in (Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK):
                refused = await user.call(code, offset="0", **named)
                assert refused.code == REFUSED, code
                assert "Topic:T" in (refused.remark or "")
                assert (await user.call(code, offset=str(at), **named)).code == 0, code
            assert harness.broker.store.max_offset("T", 0) == 1
            for offset, reason in ((0, "Topic:T"), (at, "is not online")):
                asked = {"msgId": f"7F00000100002A9F{offset:016X}", "consumerGroup": "CG"}
                answer = await user.call(
                    Code.CONSUME_MESSAGE_DIRECTLY, clientId="c1", topic="Other", **asked
                )
                assert reason in (answer.remark or "")

    run(scenario())


def test_a_transaction_is_ended_only_by_who_may_send_to_its_topic() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            half = send_header("T", properties={"TRAN_MSG": "true", "PGROUP": "PG"}, sys_flag=4)
            assert (await root.call(Code.SEND_MESSAGE_V2, half, b"half")).code == 0
            await give_rights(root, entry("Topic:Other", "Pub"))
            end = {
                "producerGroup": "PG",
                "tranStateTableOffset": "0",
                "commitLogOffset": "0",
                "commitOrRollback": "8",
                "msgId": "K1",
            }
            for named in ({}, {"topic": "Other"}):
                refused = await user.call(Code.END_TRANSACTION, **end, **named)
                assert (refused.code, "Topic:T" in (refused.remark or "")) == (REFUSED, True)
            assert harness.broker.store.max_offset("T", 0) == 0
            assert (await root.call(Code.END_TRANSACTION, **end)).code == 0
            assert harness.broker.store.max_offset("T", 0) == 1

    run(scenario())
