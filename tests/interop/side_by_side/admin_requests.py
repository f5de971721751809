"""What tools ask a broker and a name server, and what brokers ask a name server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.side_by_side.fields import (
    BROKER,
    CLUSTER,
    GROUP,
    TOPIC,
    beat,
    make_topic,
    pull,
    queue,
    subscription,
    without,
)

if TYPE_CHECKING:
    from interop.side_by_side.exchanges import Talk

NOT_THERE = (
    13, 22, 23, 27, 39, 40, 47, 209, 210, 211, 212, 213, 214, 220, 301, 302, 326, 901, 902, 903,
    905, 1001, 1008, 1010, 9999, 200070, 200071, 200074, 200075, 200076, 200077, 200078, 200079,
)  # fmt: skip
LATER = (
    60, 61, 370, 400, 401, 402, 513, 906, 907, 908, 1007, 2001, 2002, 2003, 2004, 3001, 3002,
    3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 5001, 354, 355, 200050, 200051, 200052,
    200053, 200054, 200055, 200056, 200151,
)  # fmt: skip
NOT_AT_NAMES = (10, 11, 28, 34, 310, 311, 312, 313, 902, 905, 1004, 1005, 9999, 200050)


def topics(talk: Talk) -> None:
    """17, 18, 21, 202, 215, 305, 351."""
    talk.ask("topic/new", 17, make_topic("Made"))
    talk.ask("topic/same again", 17, make_topic("Made"))
    talk.ask("topic/changed", 17, make_topic("Made", 8))
    talk.ask("topic/attributes", 17, make_topic("Attr", attributes="+message.type=FIFO"))
    talk.ask("topic/attribute taken away", 17, make_topic("Attr", attributes="-message.type"))
    talk.ask("topic/unknown attribute", 17, make_topic("Attr2", attributes="+no.such=1"))
    talk.ask(
        "topic/attribute out of range", 17, make_topic("Attr3", attributes="+message.type=ODD")
    )
    talk.ask("topic/attribute malformed", 17, make_topic("Attr4", attributes="message.type=FIFO"))
    talk.ask("topic/mixed", 17, make_topic("Mixed", attributes="+message.type=MIXED"))
    talk.ask("topic/order", 17, make_topic("Ordered", order="true"))
    talk.ask("topic/perm 0", 17, make_topic("Perm0", perm=0))
    talk.ask("topic/perm 99", 17, make_topic("Perm99", perm=99))
    talk.ask("topic/0 queues", 17, make_topic("NoQueues", 0))
    talk.ask("topic/-1 queues", 17, make_topic("MinusQueues", -1))
    talk.ask("topic/odd filter type", 17, make_topic("Odd", topicFilterType="NONE"))
    talk.ask("topic/bad name", 17, make_topic("bad name!"))
    talk.ask("topic/blank name", 17, make_topic(" "))
    talk.ask("topic/name of 128", 17, make_topic("x" * 128))
    talk.ask("topic/system", 17, make_topic("TBW102"))
    talk.ask("topic/retry", 17, make_topic("%RETRY%made"))
    for key in make_topic():
        talk.ask(f"topic/without {key}", 17, without(make_topic(f"Without{key}"), key))
    talk.ask("topic/no fields", 17)
    config = {"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
    talk.ask("topic/list", 18, {}, {"topicConfigList": [config]})
    talk.ask(
        "topic/list with a bad one",
        18,
        {},
        {"topicConfigList": [{**config, "topicName": "bad name!"}]},
    )
    talk.ask("topic/empty list", 18, {}, {"topicConfigList": []})
    talk.ask("topic/no list", 18, {}, b"")
    for name in (
        "Made",
        "Attr",
        "Mixed",
        "Ordered",
        "Perm0",
        "NoQueues",
        "Odd",
        "Listed",
        "MadeBySend",
        "More",
        "MadeByBatch",
        "TBW102",
        BROKER,
        CLUSTER,
        "Nowhere",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        f"{CLUSTER}_REPLY_TOPIC",
        f"%RETRY%{GROUP}",
    ):
        talk.ask(f"topic/config of {name}", 351, {"topic": name, "lo": "true"})
    talk.ask("topic/config of none", 351)
    talk.ask("topic/all", 21)
    talk.ask("topic/all, first page", 21, {"topicSeq": "0", "maxTopicNum": "2", "dataVersion": ""})
    talk.ask("topic/system topics", 305)
    talk.ask("topic/stats", 202, {"topic": TOPIC})
    talk.ask("topic/stats of an empty one", 202, {"topic": "ReadOnly"})
    talk.ask("topic/stats of an unknown one", 202, {"topic": "Nowhere"})
    talk.ask("topic/stats of none", 202)
    talk.ask("topic/delete", 215, {"topic": "Listed"})
    talk.ask("topic/deleted", 351, {"topic": "Listed", "lo": "true"})
    talk.ask("topic/delete unknown", 215, {"topic": "Nowhere"})
    talk.ask("topic/delete blank", 215, {"topic": ""})
    talk.ask("topic/delete none", 215)
    talk.ask("topic/delete system topic", 215, {"topic": "TBW102"})
    talk.ask("topic/delete with messages", 215, {"topic": "MadeBySend"})
    talk.ask("topic/pull after deletion", 11, pull("MadeBySend"))


def groups(talk: Talk) -> None:
    """200, 201, 207, 225, 352, 353."""
    config = {"groupName": "made-group", "consumeEnable": True, "retryMaxTimes": 3}
    talk.ask("group/new", 200, {}, config)
    talk.ask("group/read", 352, {"group": "made-group"})
    talk.ask("group/read unknown", 352, {"group": "nobody"})
    talk.ask("group/read none", 352)
    talk.ask("group/off", 200, {}, {"groupName": "off-group", "consumeEnable": False})
    talk.ask("group/pull of one that is off", 11, pull(consumerGroup="off-group"))
    talk.ask("group/no retry queues", 200, {}, {"groupName": "no-retry", "retryQueueNums": 0})
    talk.ask("group/bad name", 200, {}, {"groupName": "bad group!"})
    talk.ask("group/no name", 200, {}, {})
    talk.ask("group/empty body", 200)
    talk.ask(
        "group/attributes", 200, {}, {"groupName": "attr-group", "attributes": {"+no.such": "1"}}
    )
    talk.ask("group/list", 225, {}, {"groupConfigList": [{"groupName": "listed-group"}]})
    talk.ask(
        "group/list with a bad one", 225, {}, {"groupConfigList": [{"groupName": "bad group!"}]}
    )
    talk.ask("group/all", 201)
    talk.ask("group/all, first page", 201, {"groupSeq": "0", "maxGroupNum": "2", "dataVersion": ""})
    talk.ask("group/forbid", 353, {"group": "made-group", "topic": TOPIC, "readable": "false"})
    talk.ask("group/forbidden", 353, {"group": "made-group", "topic": TOPIC})
    talk.ask("group/allow", 353, {"group": "made-group", "topic": TOPIC, "readable": "true"})
    talk.ask("group/forbid none", 353)
    talk.ask("group/delete", 207, {"groupName": "made-group", "cleanOffset": "true"})
    talk.ask("group/deleted", 352, {"group": "made-group"})
    talk.ask("group/delete unknown", 207, {"groupName": "nobody"})
    talk.ask("group/delete none", 207)


def progress(talk: Talk) -> None:
    """208, 222, 223, 300, 303, 308, 314, 317, 321, 43, 45."""
    talk.ask("progress/commit", 15, {"consumerGroup": GROUP, **queue(), "commitOffset": "1"})
    talk.ask("progress/stats", 208, {"consumerGroup": GROUP})
    talk.ask("progress/stats of a topic", 208, {"consumerGroup": GROUP, "topic": TOPIC})
    talk.ask(
        "progress/stats of topics", 208, {"consumerGroup": GROUP, "topicList": f"{TOPIC};Empty"}
    )
    talk.ask(
        "progress/stats of an unknown topic", 208, {"consumerGroup": GROUP, "topic": "Nowhere"}
    )
    talk.ask("progress/stats of nobody", 208, {"consumerGroup": "nobody"})
    talk.ask("progress/stats of none", 208)
    reset = {"group": GROUP, "topic": TOPIC, "queueId": "-1", "timestamp": "0", "isForce": "true"}
    talk.ask("progress/reset to the start", 222, reset)
    talk.ask(
        "progress/commit while reset", 15, {"consumerGroup": GROUP, **queue(), "commitOffset": "2"}
    )
    talk.ask("progress/offset while reset", 14, {"consumerGroup": GROUP, **queue()})
    talk.ask("progress/pull after reset", 11, pull(offset=3))
    talk.ask("progress/pull again", 11, pull(offset=3, maxMsgNums="1"))
    talk.ask("progress/reset to the end", 222, {**reset, "timestamp": "-1"})
    talk.ask("progress/reset one queue", 222, {**reset, "queueId": "0", "offset": "1"})
    talk.ask("progress/reset out of range", 222, {**reset, "queueId": "0", "offset": "99999"})
    talk.ask(
        "progress/reset a queue that is not there", 222, {**reset, "queueId": "77", "offset": "0"}
    )
    talk.ask("progress/reset of an unknown topic", 222, {**reset, "topic": "Nowhere"})
    talk.ask("progress/reset of an unknown group", 222, {**reset, "group": "nobody"})
    for key in ("group", "topic", "timestamp", "isForce"):
        talk.ask(f"progress/reset without {key}", 222, without(reset, key))
    talk.ask("progress/status of nobody", 223, {"group": "nobody", "topic": TOPIC})
    talk.ask("progress/status of an unknown topic", 223, {"group": GROUP, "topic": "Nowhere"})
    talk.ask("progress/time span", 303, {"group": GROUP, "topic": TOPIC})
    talk.ask("progress/time span of an unknown topic", 303, {"group": GROUP, "topic": "Nowhere"})
    talk.ask("progress/time span of nobody", 303, {"group": "nobody", "topic": TOPIC})
    talk.ask(
        "progress/correction", 308, {"compareGroup": GROUP, "topic": TOPIC, "filterGroups": ""}
    )
    talk.ask("progress/correction of none", 308)
    clone = {"srcGroup": GROUP, "destGroup": "clone-group", "topic": TOPIC, "offline": "true"}
    talk.ask("progress/clone", 314, clone)
    talk.ask("progress/cloned", 14, {"consumerGroup": "clone-group", **queue()})
    talk.ask("progress/clone of nobody", 314, {**clone, "srcGroup": "nobody"})
    talk.ask("progress/clone of none", 314)
    talk.ask("progress/all stats", 317, {"isOrder": "false"})
    talk.ask("progress/all stats, order", 317, {"isOrder": "true"})
    talk.ask("progress/all stats of none", 317)
    content = {"topic": TOPIC, "queueId": "0", "index": "0", "count": "3"}
    talk.ask("progress/queue content", 321, content)
    talk.ask("progress/queue content for a group", 321, {**content, "consumerGroup": GROUP})
    talk.ask("progress/queue content from the end", 321, {**content, "index": "-1"})
    talk.ask("progress/queue content beyond", 321, {**content, "index": "99999"})
    talk.ask("progress/queue content of an unknown topic", 321, {**content, "topic": "Nowhere"})
    talk.ask("progress/queue content of none", 321)
    talk.ask("progress/all offsets", 43)
    talk.ask("progress/all delay offsets", 45)


def runtime(talk: Talk) -> None:
    """25, 26, 28, 306, 307, 309, 315, 316, 323, 329."""
    talk.ask("runtime/config", 26)
    talk.ask("runtime/info", 28)
    talk.ask("runtime/set", 25, {}, b"maxTransferCountOnMessageInMemory=31\n")
    talk.ask("runtime/set unknown key", 25, {}, b"noSuchKey=1\n")
    talk.ask("runtime/set bad value", 25, {}, b"maxTransferCountOnMessageInMemory=soon\n")
    talk.ask("runtime/set forbidden key", 25, {}, b"brokerConfigPath=/tmp/x\n")
    talk.ask("runtime/set nothing", 25)
    talk.ask("runtime/set back", 25, {}, b"maxTransferCountOnMessageInMemory=32\n")
    talk.ask("runtime/clean queues", 306)
    talk.ask("runtime/clean topics", 316)
    talk.ask("runtime/delete files", 329)
    for stats, key in (
        ("TOPIC_PUT_NUMS", TOPIC),
        ("TOPIC_PUT_SIZE", TOPIC),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"),
        ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"),
        ("SNDBCK_PUT_NUMS", f"Empty@{GROUP}"),
        ("BROKER_PUT_NUMS", CLUSTER),
        ("BROKER_GET_NUMS", CLUSTER),
        ("TOPIC_PUT_NUMS", "Nowhere"),
        ("NO_SUCH_STATS", TOPIC),
    ):
        talk.ask(f"runtime/{stats} of {key}", 315, {"statsName": stats, "statsKey": key})
    talk.ask("runtime/stats of none", 315)
    talk.ask("runtime/running info of nobody", 307, {"consumerGroup": "nobody", "clientId": "c@0"})
    talk.ask("runtime/running info of none", 307)
    body = beat("running@1", subscription(), group="running-group")
    talk.ask("runtime/heartbeat", 34, {}, body, on="running")
    asked = talk.post(
        "runtime/running info",
        307,
        {"consumerGroup": "running-group", "clientId": "running@1", "jstackEnable": "false"},
    )
    info = b'{"mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}'
    talk.pushed("runtime/running info pushed", 307, on="running", answer=info)
    talk.collect(asked)
    talk.ask(
        "runtime/running info of another client",
        307,
        {"consumerGroup": "running-group", "clientId": "other@1"},
    )
    talk.ask(
        "runtime/consume directly by nobody",
        309,
        {"consumerGroup": "nobody", "clientId": "c@0", "msgId": "00" * 16},
    )
    talk.ask("runtime/consume directly of none", 309)
    talk.ask("runtime/check half message again", 323, {"topic": TOPIC, "msgId": "00" * 16})
    talk.ask("runtime/check half message of none", 323)


def not_there(talk: Talk) -> None:
    """Codes without a processor, and those of a later release of ours."""
    for code in (*NOT_THERE, *LATER):
        talk.ask(f"code/{code}", code)
    talk.ask(
        "code/pop",
        200050,
        {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": "1",
            "invisibleTime": "10000",
            "pollTime": "100",
            "bornTime": "1700000000000",
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
            "order": "false",
        },
    )
    talk.ask(
        "code/assignment",
        400,
        {},
        {
            "clientId": "c",
            "consumerGroup": GROUP,
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": TOPIC,
        },
    )


def names(talk: Talk) -> None:
    """What the name server answers."""

    def ask(name: str, code: int, ext=None, body=b"", **more) -> None:
        talk.ask(f"names/{name}", code, ext, body, to="namesrv", **more)

    talk.pause(1.0)
    ask("route", 105, {"topic": TOPIC})
    ask(
        "route, standard JSON", 105, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}, version=300
    )
    ask("route, old client", 105, {"topic": TOPIC}, version=399)
    ask("route of TBW102", 105, {"topic": "TBW102"})
    ask("route of the broker", 105, {"topic": BROKER})
    ask("route of an order topic", 105, {"topic": "Ordered"})
    ask("route of an unknown topic", 105, {"topic": "Nowhere"})
    ask("route of none", 105)
    ask("cluster", 106)
    ask("all topics", 206)
    ask("topics of a cluster", 224, {"cluster": CLUSTER})
    ask("topics of an unknown cluster", 224, {"cluster": "Nowhere"})
    ask("topics of none", 224)
    ask("system topics", 304)
    ask("unit topics", 311)
    ask("unit sub topics", 312)
    ask("unit sub ununit topics", 313)
    kv = {"namespace": "space", "key": "k", "value": "v"}
    ask("KV miss", 101, without(kv, "value"))
    ask("KV put", 100, kv)
    ask("KV hit", 101, without(kv, "value"))
    ask("KV list", 219, {"namespace": "space"})
    ask("KV list of nothing", 219, {"namespace": "nothing"})
    ask("KV list of none", 219)
    ask("KV delete", 102, without(kv, "value"))
    ask("KV delete again", 102, without(kv, "value"))
    ask("KV list when empty", 219, {"namespace": "space"})
    for key in kv:
        ask(f"KV put without {key}", 100, without(kv, key))
    for key in ("namespace", "key"):
        ask(f"KV get without {key}", 101, without(kv, key, "value"))
    ask(
        "order configuration",
        100,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered", "value": f"{BROKER}:4"},
    )
    ask("route of a topic with order configuration", 105, {"topic": "Ordered"})
    ask("wipe of an unknown broker", 205, {"brokerName": "nobody"})
    ask("wipe", 205, {"brokerName": BROKER})
    ask("route after the wipe", 105, {"topic": TOPIC})
    ask("add", 327, {"brokerName": BROKER})
    ask("route after the add", 105, {"topic": TOPIC})
    ask("add for an unknown broker", 327, {"brokerName": "nobody"})
    ask("wipe of none", 205)
    ask("delete unknown topic", 216, {"topic": "Nowhere"})
    ask("delete topic", 216, {"topic": "Odd"})
    ask("route after deletion", 105, {"topic": "Odd"})
    ask("delete in a cluster", 216, {"topic": "Ordered", "clusterName": CLUSTER})
    ask("delete none", 216)
    ask("config", 319)
    ask("set", 318, {}, b"orderMessageEnable=true\n")
    ask("set unknown key", 318, {}, b"noSuchKey=1\n")
    ask("set forbidden key", 318, {}, b"configStorePath=/tmp/x\n")
    ask("set nothing", 318)
    ask("route with order configuration", 105, {"topic": "Ordered"})
    ask("members", 901, {"clusterName": CLUSTER, "brokerName": BROKER})
    ask("members of an unknown broker", 901, {"clusterName": CLUSTER, "brokerName": "nobody"})
    broker = {
        "brokerName": "fake",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "FakeCluster",
        "brokerId": "0",
    }
    ask(
        "data version of an unknown broker",
        322,
        broker,
        {"counter": 1, "timestamp": 1, "stateVersion": 0},
    )
    version = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    config = {
        "topicName": "FakeTopic",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    table = {"FakeTopic": config, "FakeTopic2": {**config, "topicName": "FakeTopic2"}}
    registration = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": version,
            "mappingDataVersion": version,
            "topicConfigTable": table,
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        },
    }
    register = {**broker, "haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": "0"}
    one = {
        **registration,
        "topicConfigSerializeWrapper": {
            **registration["topicConfigSerializeWrapper"],
            "topicConfigTable": {"FakeTopic": config},
        },
    }
    ask("first registration of one topic", 103, register, one, on="fake")
    ask("registration", 103, register, registration, on="fake")
    ask("registration, wrong CRC", 103, {**register, "bodyCrc32": "7"}, registration, on="fake")
    ask("route of the registered", 105, {"topic": "FakeTopic"})
    ask("data version, same", 322, broker, version, on="fake")
    ask("data version, other", 322, broker, {**version, "counter": 2}, on="fake")
    slave = {**register, "brokerId": "1", "brokerAddr": "127.0.0.1:5"}
    ask("registration of a slave", 103, slave, registration, on="fake")
    ask("route with a slave", 105, {"topic": "FakeTopic"})
    ask("members with a slave", 901, {"clusterName": "FakeCluster", "brokerName": "fake"})
    ask("broker heartbeat", 904, broker, on="fake")
    ask("broker heartbeat of none", 904, on="fake")
    ask(
        "register topic",
        217,
        {"topic": "Registered"},
        {
            "brokerDatas": [],
            "queueDatas": [
                {
                    "brokerName": "fake",
                    "readQueueNums": 2,
                    "writeQueueNums": 2,
                    "perm": 6,
                    "topicSysFlag": 0,
                }
            ],
            "filterServerTable": {},
        },
    )
    ask("route of the registered topic", 105, {"topic": "Registered"})
    ask(
        "unregister the slave",
        104,
        {**broker, "brokerId": "1", "brokerAddr": "127.0.0.1:5"},
        on="fake",
    )
    ask("unregister", 104, broker, on="fake")
    talk.pause(0.5)
    ask("route after unregistration", 105, {"topic": "FakeTopic"})
    ask("cluster after unregistration", 106)
    ask("unregister unknown", 104, broker, on="fake")
    ask("register again to fall silent", 103, register, registration, on="fake-3")
    ask("route before the silence", 105, {"topic": "FakeTopic"})
    talk.hang_up("fake-3", "namesrv")
    talk.pause(1.0)
    ask("route after the connection closed", 105, {"topic": "FakeTopic"})
    ask(
        "registration, no body",
        103,
        {**register, "brokerName": "fake2", "brokerAddr": "127.0.0.1:3"},
        on="odd",
    )
    odd = {**register, "brokerName": "odd", "brokerAddr": "127.0.0.1:9"}
    for key in broker:
        ask(f"registration without {key}", 103, without(odd, key), registration, on="odd")
    for code in NOT_AT_NAMES:
        ask(f"code {code}", code)


SECTIONS = (topics, groups, progress, runtime, not_there, names)
