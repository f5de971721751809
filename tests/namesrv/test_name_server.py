"""A running name server, asked over real connections."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import SettingsError
from cometmq.model.topic import DataVersion
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.net.server import RemotingServer
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.wire.bodies import name_lists, route
from cometmq.wire.bodies.topic import (
    decode_data_version,
    encode_data_version,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command
from namesrv.harness import (
    BROKER,
    WHO,
    Watch,
    ask,
    register,
    registration,
    route_code,
    run,
    serving,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.net.channel import Channel
    from cometmq.net.connection import Connection
    from cometmq.wire.frame import Frame


def test_a_registered_topic_is_routed_until_the_brokers_connection_closes() -> None:
    async def scenario() -> None:
        async with serving() as server:
            broker, client = await connect(server.address), await connect(server.address)
            assert (await register(broker, "t", "u")).code == ResponseCode.SUCCESS
            answer = await ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            found = route.decode_route(answer.body)
            assert [data.broker_addrs for data in found.broker_datas] == [{0: BROKER}]
            assert [queue.write_queue_nums for queue in found.queue_datas] == [4]
            broker.close()
            while await route_code(client, "t") == ResponseCode.SUCCESS:
                await asyncio.sleep(0.005)
            answer = await ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert answer.remark == "No topic route info in name server for the topic: t"
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("version", "ext", "addrs"),
    [
        (401, {}, b'"brokerAddrs":{"0":"10.0.0.1:10911"}'),
        (399, {}, b'"brokerAddrs":{0:"10.0.0.1:10911"}'),
        (399, {"acceptStandardJsonOnly": "true"}, b'"brokerAddrs":{"0":"10.0.0.1:10911"}'),
    ],
)
def test_routes_are_returned_in_the_json_that_the_client_reads(
    version: int, ext: dict[str, str], addrs: bytes
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            await register(channel, "t", "u")
            answer = await ask(
                channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, topic="t", **ext
            )
            assert addrs in answer.body
            channel.close()

    run(scenario())


def test_a_silent_broker_expires_with_its_connection() -> None:
    watch = Watch()

    async def scenario() -> None:
        async with serving(watch, scan_not_active_broker_interval_ms=10) as server:
            broker, client = await connect(server.address), await connect(server.address)
            await register(broker, "t", "u", heartbeatTimeoutMillis="5000")
            watch.ms += 5_000
            await asyncio.sleep(0.05)
            assert await route_code(client, "t") == ResponseCode.SUCCESS
            watch.ms += 1
            await asyncio.wait_for(broker.wait_closed(), 10)
            assert await route_code(client, "t") == ResponseCode.TOPIC_NOT_EXIST
            client.close()

    run(scenario())


@pytest.mark.parametrize("sign", ["heartbeat", "version", "registration"])
def test_signs_of_life_keep_a_broker(sign: str) -> None:
    watch = Watch()

    async def scenario() -> None:
        async with serving(watch, scan_not_active_broker_interval_ms=10) as server:
            broker = await connect(server.address)
            await register(broker, "t", "u")
            for _ in range(5):
                watch.ms += 100_000
                if sign == "heartbeat":
                    answer = await ask(broker, RequestCode.BROKER_HEARTBEAT, **WHO)
                elif sign == "version":
                    body = encode_data_version(DataVersion(counter=1))
                    answer = await ask(broker, RequestCode.QUERY_DATA_VERSION, body, **WHO)
                    assert answer.ext["changed"] == "false"
                else:
                    answer = await register(broker, "t", "u")
                assert answer.code == ResponseCode.SUCCESS
                await asyncio.sleep(0.03)
                assert await route_code(broker, "t") == ResponseCode.SUCCESS
            watch.ms += 120_001
            await asyncio.wait_for(broker.wait_closed(), 10)

    run(scenario())


def test_a_broker_asks_whether_its_topics_are_known() -> None:
    async def scenario() -> None:
        async with serving() as server:
            broker = await connect(server.address)
            body = encode_data_version(DataVersion(counter=2))
            answer = await ask(broker, RequestCode.QUERY_DATA_VERSION, body, **WHO)
            assert (answer.ext["changed"], answer.body) == ("true", b"")
            await register(broker, "t", "u", counter=1)
            answer = await ask(broker, RequestCode.QUERY_DATA_VERSION, body, **WHO)
            assert answer.ext["changed"] == "true"
            assert decode_data_version(answer.body) == DataVersion(counter=1)
            broker.close()

    run(scenario())


def test_a_broker_that_unregisters_is_gone_at_once() -> None:
    async def scenario() -> None:
        async with serving() as server:
            broker = await connect(server.address)
            await register(broker, "t", "u")
            answer = await ask(broker, RequestCode.UNREGISTER_BROKER, **WHO)
            assert answer.code == ResponseCode.SUCCESS
            assert await route_code(broker, "t") == ResponseCode.TOPIC_NOT_EXIST
            broker.close()

    run(scenario())


def test_a_damaged_registration_is_refused_and_changes_nothing() -> None:
    body = registration("t", "u")

    async def scenario() -> None:
        async with serving() as server:
            broker = await connect(server.address)
            wrong = {**WHO, "bodyCrc32": "1"}
            answer = await ask(broker, RequestCode.REGISTER_BROKER, body, **wrong)
            assert (answer.code, answer.remark) == (1, "crc32 of the body does not match")
            answer = await ask(broker, RequestCode.REGISTER_BROKER, b"{", **WHO)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            answer = await ask(broker, RequestCode.REGISTER_BROKER, body, brokerName="a")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            answer = await register(broker, "t")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert await route_code(broker, "t") == ResponseCode.TOPIC_NOT_EXIST
            right = {**WHO, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
            answer = await ask(broker, RequestCode.REGISTER_BROKER, body, **right)
            assert answer.code == ResponseCode.SUCCESS
            broker.close()

    run(scenario())


def test_lists_of_topics_clusters_and_members() -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            await register(channel, "t", "u")
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            assert name_lists.decode_topic_list((await ask(channel, code)).body) == ["t", "u"]
            answer = await ask(channel, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C")
            assert name_lists.decode_topic_list(answer.body) == ["t", "u"]
            answer = await ask(channel, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            assert answer.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["C","a"]}'
            answer = await ask(channel, RequestCode.GET_BROKER_CLUSTER_INFO)
            info = route.decode_cluster_info(answer.body)
            assert info.cluster_addr_table == {"C": ["a"]}
            assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in answer.body
            answer = await ask(
                channel, RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a"
            )
            group = route.decode_member_group(answer.body)
            assert group is not None
            assert group.broker_addrs == {0: BROKER}
            answer = await ask(
                channel, RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="z"
            )
            group = route.decode_member_group(answer.body)
            assert group is not None
            assert group.broker_addrs == {}
            channel.close()

    run(scenario())


def test_permissions_and_topics_are_changed_by_request() -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            await register(channel, "t", "u")
            answer = await ask(channel, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
            assert answer.ext["wipeTopicCount"] == "2"
            answer = await ask(channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert route.decode_route(answer.body).queue_datas[0].perm == 4
            answer = await ask(channel, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
            assert answer.ext["addTopicCount"] == "2"
            await ask(channel, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t")
            assert await route_code(channel, "t") == ResponseCode.TOPIC_NOT_EXIST
            channel.close()

    run(scenario())


def test_texts_are_kept_across_a_restart_where_a_file_is_given(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kvConfig.json"

    async def scenario() -> None:
        async with serving(kv_config_path=str(path)) as server:
            channel = await connect(server.address)
            answer = await ask(channel, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            for key, value in (("k", "v"), ("gone", "x")):
                await ask(channel, RequestCode.PUT_KV_CONFIG, namespace="n", key=key, value=value)
            await ask(channel, RequestCode.DELETE_KV_CONFIG, namespace="n", key="gone")
            answer = await ask(channel, RequestCode.PUT_KV_CONFIG, namespace="n", key="k")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            channel.close()
        async with serving(kv_config_path=str(path)) as server:
            channel = await connect(server.address)
            answer = await ask(channel, RequestCode.GET_KV_CONFIG, namespace="n", key="k")
            assert answer.ext == {"value": "v"}
            answer = await ask(channel, RequestCode.GET_KV_CONFIG, namespace="n", key="gone")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            answer = await ask(channel, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            assert name_lists.decode_kv_table(answer.body) == {"k": "v"}
            channel.close()

    run(scenario())
    assert json.loads(path.read_bytes()) == {"configTable": {"n": {"k": "v"}}}


def test_order_configuration_outlives_a_restart_where_apache_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default = NamesrvSettings().kv_config_path
    conf = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}

    async def scenario() -> None:
        async with serving(kv_config_path=default) as server:
            channel = await connect(server.address)
            await ask(channel, RequestCode.PUT_KV_CONFIG, value="a:4;b:4", **conf)
            channel.close()
        async with serving(kv_config_path=default, order_message_enable=True) as server:
            channel = await connect(server.address)
            answer = await register(channel, "t", "u")
            assert name_lists.decode_kv_table(answer.body) == {"t": "a:4;b:4"}
            answer = await ask(channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert route.decode_route(answer.body).order_topic_conf == "a:4;b:4"
            await ask(channel, RequestCode.DELETE_KV_CONFIG, **conf)
            channel.close()
        async with serving(kv_config_path=default) as server:
            channel = await connect(server.address)
            assert (await ask(channel, RequestCode.GET_KV_CONFIG, **conf)).code != 0
            channel.close()

    run(scenario())
    assert (tmp_path / "namesrv" / "kvConfig.json").is_file()


def test_many_texts_at_once_are_all_kept_and_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"

    async def scenario() -> None:
        async with serving(kv_config_path=str(path)) as server:
            channel = await connect(server.address)
            code = RequestCode.PUT_KV_CONFIG
            keys = [str(number) for number in range(50)]
            await asyncio.gather(
                *(ask(channel, code, namespace="n", key=key, value="v" + key) for key in keys)
            )
            path.with_name("kv.json.tmp").mkdir()  # writing there fails
            answer = await ask(channel, code, namespace="n", key="0", value="new")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "the KV configuration cannot be written" in (answer.remark or "")
            answer = await ask(channel, RequestCode.GET_KV_CONFIG, namespace="n", key="0")
            assert answer.ext == {"value": "v0"}
            channel.close()
        kept = json.loads(path.read_bytes())
        assert kept == {"configTable": {"n": {key: "v" + key for key in keys}}}

    run(scenario())


@pytest.mark.parametrize(
    "content", [None, "", "[]", '{"configTable": [', '{"configTable": {"n": 3}}']
)
def test_the_former_texts_are_used_with_a_warning_or_the_start_refuses(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, backup = tmp_path / "kv.json", tmp_path / "kv.json.bak"
    backup.write_text('{"configTable": {"n": {"k": "v"}}}')
    if content is not None:
        path.write_text(content)
    settings = NamesrvSettings(kv_config_path=str(path))
    NameServer.open(settings)
    assert "the copy before it, .bak, is used" in caplog.text
    backup.write_text("")
    with pytest.raises(SettingsError, match="bring it back, or, to begin without KV"):
        NameServer.open(settings)


def test_a_damaged_file_of_texts_is_a_one_sentence_error(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{"configTable": [')
    with pytest.raises(SettingsError, match=rf"kvConfigPath {path}: the KV configuration cannot"):
        NameServer.open(NamesrvSettings(kv_config_path=str(path)))


def test_an_unknown_home_directory_is_a_one_line_error() -> None:
    path = "~no-such-user/kv.json"
    with pytest.raises(SettingsError, match=rf"kvConfigPath is {path}, and nobody knows that home"):
        NameServer.open(NamesrvSettings(kv_config_path=path))


def test_order_topics_are_sent_to_brokers_and_where_enabled_to_clients() -> None:
    conf = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"}

    async def scenario() -> None:
        async with serving(order_message_enable=True) as server:
            channel = await connect(server.address)
            assert (await register(channel, "t", "u")).body == b""
            await ask(channel, RequestCode.PUT_KV_CONFIG, **conf)
            answer = await register(channel, "t", "u")
            assert name_lists.decode_kv_table(answer.body) == {"t": "a:4"}
            answer = await ask(channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert route.decode_route(answer.body).order_topic_conf == "a:4"
            channel.close()

    run(scenario())


def test_settings_are_returned_and_changed_all_or_none() -> None:
    async def update(channel: Channel, text: str) -> tuple[int, str | None]:
        answer = await ask(channel, RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())
        return answer.code, answer.remark

    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            answer = await ask(channel, RequestCode.GET_NAMESRV_CONFIG)
            assert b"enableAllTopicList=true\n" in answer.body
            code, remark = await update(channel, "enableAllTopicList=false\nenableAllTopicLst=1")
            assert code == ResponseCode.SYSTEM_ERROR
            assert remark is not None
            assert "did you mean enableAllTopicList?" in remark
            code, _ = await update(channel, "enableAllTopicList=false\nkvConfigPath=/x")
            assert code == ResponseCode.NO_PERMISSION
            code, _ = await update(channel, "listenPort=1")
            assert code == ResponseCode.SYSTEM_ERROR
            code, remark = await update(channel, "#" * 65_537)
            assert code == ResponseCode.SYSTEM_ERROR
            assert "the limit is 65536" in str(remark)
            listing = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            assert (await ask(channel, listing)).code == ResponseCode.SUCCESS
            kept = "kept until the name server stops: it was started without a settings file"
            assert await update(channel, "enableAllTopicList=false") == (0, kept)
            assert await update(channel, "enableAllTopicList=false") == (0, None), "it is so"
            answer = await ask(channel, listing)
            assert (answer.code, answer.remark) == (1, "disable")
            channel.close()

    run(scenario())


def test_changed_settings_are_written_into_the_settings_file(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("# ours\norderMessageEnable = false\n")

    async def scenario() -> None:
        async with serving(conf=conf) as server:
            channel = await connect(server.address)
            text = b"orderMessageEnable=true\nenableTopicList=false\nserverWorkerThreads=9\n"
            answer = await ask(channel, RequestCode.UPDATE_NAMESRV_CONFIG, text)
            assert answer.code == 0
            assert "serverWorkerThreads" in (answer.remark or "")
            channel.close()

    run(scenario())
    assert conf.read_text() == "# ours\norderMessageEnable=true\nenableTopicList=false\n"
    assert (tmp_path / "namesrv.conf.bak").read_text() == "# ours\norderMessageEnable = false\n"


def test_no_routes_while_the_name_server_waits_for_its_brokers() -> None:
    async def scenario() -> None:
        async with serving(need_wait_for_service=True) as server:
            channel = await connect(server.address)
            await register(channel, "t", "u")
            answer = await ask(channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert (answer.code, answer.remark) == (1, "name server not ready")
            await ask(channel, RequestCode.UPDATE_NAMESRV_CONFIG, b"waitSecondsForService=0")
            assert await route_code(channel, "t") == ResponseCode.SUCCESS
            channel.close()

    run(scenario())


def test_a_client_that_asks_for_its_zone_sees_only_masters_there() -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            await register(channel, "t", "u", __ZONE_NAME="east")
            other = {"brokerName": "b", "brokerAddr": "10.0.0.2:1", "__ZONE_NAME": "west"}
            await register(channel, "t", "u", **other)
            answer = await ask(
                channel,
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                topic="t",
                __ZONE_MODE="true",
                __ZONE_NAME="West",
            )
            found = route.decode_route(answer.body)
            assert [data.broker_name for data in found.broker_datas] == ["b"]
            assert [queue.broker_name for queue in found.queue_datas] == ["b"]
            channel.close()

    run(scenario())


def test_unit_topics_are_listed_by_their_flags_and_a_topic_can_be_given_queues() -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            await register(channel, "t", "u")

            async def listed(code: RequestCode) -> list[str]:
                return name_lists.decode_topic_list((await ask(channel, code)).body)

            for name, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3)):
                queues = [{"brokerName": "a", "perm": 6, "topicSysFlag": flag}]
                body = json.dumps({"brokerDatas": [], "queueDatas": queues}).encode()
                answer = await ask(channel, RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic=name)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert await listed(RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
            assert await listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["both", "sub"]
            assert await listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["sub"]
            stranger = json.dumps({"queueDatas": [{"brokerName": "nobody"}]}).encode()
            await ask(channel, RequestCode.REGISTER_TOPIC_IN_NAMESRV, stranger, topic="lost")
            assert await route_code(channel, "lost") == ResponseCode.TOPIC_NOT_EXIST
            channel.close()

    run(scenario())


def test_brokers_of_one_name_hear_who_is_the_first_of_them() -> None:
    async def scenario() -> None:
        heard: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        def listen(frame: Frame, _connection: Connection) -> None:
            command = Command.decode(frame)
            assert command.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            assert command.is_oneway
            heard.put_nowait(command.ext)

        ear = RemotingServer(listen, NetSettings())
        slave = f"127.0.0.1:{await ear.start('127.0.0.1', 0)}"
        acting = {"enableActingMaster": "true"}
        async with serving(notify_min_broker_id_changed=True) as server:
            one, two = await connect(server.address), await connect(server.address)
            await register(two, "t", "u", brokerId="1", brokerAddr=slave, **acting)
            await register(one, "t", "u", haServerAddr="ha:1", **acting)
            notice = await asyncio.wait_for(heard.get(), 30)
            assert (notice["minBrokerId"], notice["minBrokerAddr"]) == ("0", BROKER)
            assert notice["haBrokerAddr"] == "ha:1"
            answer = await ask(two, RequestCode.UNREGISTER_BROKER, **WHO)
            assert answer.code == 0
            notice = await asyncio.wait_for(heard.get(), 30)
            assert (notice["minBrokerId"], notice["minBrokerAddr"]) == ("1", slave)
            assert notice["offlineBrokerAddr"] == BROKER
            await ask(one, RequestCode.UPDATE_NAMESRV_CONFIG, b"notifyMinBrokerIdChanged=false")
            await register(one, "t", "u", **acting)
            assert heard.empty()
            one.close()
            two.close()
        await ear.stop()

    run(scenario())


def test_a_slave_that_becomes_the_master_brings_its_queues_back_to_writing() -> None:
    async def scenario() -> None:
        async with serving() as server:
            one, two = await connect(server.address), await connect(server.address)
            acting, slave = {"enableActingMaster": "true"}, "10.0.0.2:10911"
            await register(one, "t", "u", **acting)
            await register(two, "t", "u", brokerId="1", brokerAddr=slave, **acting)
            await ask(one, RequestCode.UNREGISTER_BROKER, **WHO)
            answer = await ask(two, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            assert route.decode_route(answer.body).queue_datas[0].perm == 4
            await register(two, "t", "u", brokerId="0", brokerAddr=slave, **acting)
            answer = await ask(two, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
            found = route.decode_route(answer.body)
            assert found.broker_datas[0].broker_addrs == {0: slave}
            assert found.queue_datas[0].perm == 6, "though its topics have not changed"
            one.close()
            two.close()

    run(scenario())


@pytest.mark.parametrize(
    "code", [RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, 9_999]
)
def test_unsupported_requests_of_a_name_server_are_answered_with_an_error(code: int) -> None:
    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            answer = await ask(channel, code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert "not supported" in (answer.remark or "")
            channel.close()

    run(scenario())


def test_what_a_name_server_keeps_for_others_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.namesrv.kv_config.TEXTS_MAX", 2)
    monkeypatch.setattr("cometmq.namesrv.route_registry.BROKERS_MAX", 2)

    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)

            async def put(namespace: str, key: str, value: str) -> int:
                fields = {"namespace": namespace, "key": key, "value": value}
                return (await ask(channel, RequestCode.PUT_KV_CONFIG, **fields)).code

            assert [await put("n", key, "v") for key in "abc"] == [0, 0, 1]
            assert await put("n", "a", "other") == 0, "it was there before"
            assert await put("n", "a", "x" * 70_000) == 1
            monkeypatch.setattr("cometmq.namesrv.kv_config.CHARS_MAX", 20)
            assert await put("n", "a", "x" * 16) == 1, "with nbv that would be 21 characters"
            assert await put("n", "a", "x" * 15) == 0
            for name in "ab":
                await ask(channel, RequestCode.DELETE_KV_CONFIG, namespace="n", key=name)
            answer = await ask(channel, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            assert (answer.code, answer.body) == (0, b'{"table":{}}'), "as at Apache's"
            assert await put("m", "a", "x" * 18) == 1, "the empty one counts as well"
            assert await put("m", "a", "x" * 17) == 0
            assert await put("k", "a", "x") == 1
            for number, code in enumerate((0, 0, 1)):
                addr = f"10.0.0.{number}:1"
                answer = await register(channel, "t", "u", brokerName=f"b{number}", brokerAddr=addr)
                assert answer.code == code
            answer = await register(channel, "t", "u", brokerName="b0", brokerAddr="10.0.0.0:1")
            assert answer.code == 0, "it is registered already"
            channel.close()

    run(scenario())


@pytest.mark.parametrize("addr", ["127.0.0.1:0", "0.0.0.0:10911"])
def test_an_address_that_no_client_can_connect_to_is_warned_of(
    addr: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            broker = await connect(server.address)
            for _ in range(2):
                await register(broker, "t", "u", brokerAddr=addr)
            broker.close()

    run(scenario())
    assert caplog.text.count(f"registers the address {addr}, to which no client can connect") == 1
