"""`cometmq` commands show of Apache's broker and of ours what mqadmin 5.5.0 shows of them."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Message, Producer, PushConsumer
from interop import test_changes_beside_mqadmin as changes
from interop.beside_mqadmin import (
    BROKER,
    CLUSTER,
    GROUP,
    TOPIC,
    beside,
    lag,
    progress,
    properties,
    route,
    table,
)

if TYPE_CHECKING:
    from interop.beside_mqadmin import Pair

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "cli.md"
_NAMES = """
    brokerStatus clusterList topicList topicRoute topicStatus topicClusterList updateTopic
    deleteTopic updateTopicPerm allocateMQ statsAll updateSubGroup deleteSubGroup
    consumerProgress consumerStatus consumerConnection producerConnection producer
    cloneGroupOffset resetOffsetByTime skipAccumulatedMessage setConsumeMode startMonitoring
    queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById
    printMsg printMsgByQueue sendMessage consumeMessage checkMsgSendRT getBrokerConfig
    updateBrokerConfig getNamesrvConfig updateNamesrvConfig wipeWritePerm addWritePerm
    exportMetadata
"""
DAILY = frozenset(_NAMES.split())
"""The commands of mqadmin that people use from day to day."""


@beside("clusterList", "brokerStatus")
def test_clusters_and_brokers(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    (row,) = cometmq("cluster", "--json").json["brokers"]
    assert (row["cluster"], row["broker"], str(row["broker_id"]), row["addr"]) in table(
        mqadmin("clusterList"), 4
    )
    assert (row["addr"], row["problem"]) == (addr, None)
    theirs = properties(mqadmin("brokerStatus", "-c", "DefaultCluster"))
    assert set(cometmq("brokers", "status", BROKER, "--json").json) >= set(theirs)
    assert theirs["brokerVersionDesc"] == row["version"]


@beside("topicList", "topicRoute", "topicStatus", "topicClusterList")
def test_a_topic(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    names = {line.strip() for line in mqadmin("topicList")}
    assert set(cometmq("topic", "list", "--system", "--json").json) == names
    theirs = route(mqadmin, TOPIC)
    ours = cometmq("topic", "route", TOPIC, "--json").json["brokers"]
    assert [(one["readQueueNums"], one["writeQueueNums"], one["perm"]) for one in theirs] == [
        (one["read_queues"], one["write_queues"], {"rw": 6}[one["perm"]]) for one in ours
    ]
    assert {one["cluster"] for one in ours} == set(mqadmin("topicClusterList", "-t", TOPIC))
    rows = cometmq("topic", "status", TOPIC, "--json").json["queues"]
    names_of = ("broker", "queue_id", "first_offset", "end_offset")
    queues = {row for row in table(mqadmin("topicStatus", "-t", TOPIC), 4) if row[0] == BROKER}
    assert {tuple(str(row[name]) for name in names_of) for row in rows} == queues


@beside("getBrokerConfig", "getNamesrvConfig")
def test_settings(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    theirs = properties(mqadmin("getBrokerConfig", "-b", addr))
    ours = cometmq("brokers", "config", "get", BROKER, "--json").json
    assert len(theirs) > 100
    assert {name: ours[name] for name in theirs} == theirs
    theirs = properties(mqadmin("getNamesrvConfig"))
    (ours,) = cometmq("nameservers", "config", "get", "--json").json.values()
    assert "orderMessageEnable" in theirs
    assert {name: ours[name] for name in theirs} == theirs


@beside("exportMetadata")
def test_topics_and_groups_as_a_file(pair: Pair, tmp_path: Path) -> None:
    cometmq, mqadmin, _ = pair
    mqadmin("exportMetadata", "-c", CLUSTER, "-f", str(tmp_path))
    theirs = json.loads((tmp_path / "metadata.json").read_text())
    ours = cometmq("brokers", "metadata").json[BROKER]
    for table_of, kind in (("topicConfigTable", "topics"), ("subscriptionGroupTable", "groups")):
        assert theirs[table_of]
        assert set(theirs[table_of]) <= set(ours[kind])  # they leave out those of the system
    topic = theirs["topicConfigTable"][TOPIC]
    names_of = {"topicName": "topic_name", "readQueueNums": "read_queue_nums", "perm": "perm"}
    assert {ours["topics"][TOPIC][own] == topic[name] for name, own in names_of.items()} == {True}


@beside("queryMsgByOffset", "printMsgByQueue", "consumeMessage")
def test_messages_of_one_queue(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    ours = cometmq("topic", "peek", TOPIC, "--queue", f"{BROKER}:1", "--oldest", "--json").json
    assert ours
    place = ("-b", BROKER, "-i", "1", "-o", "0")
    shown = "\n".join(mqadmin("queryMsgByOffset", "-t", TOPIC, *place))
    found = cometmq("message", "get", TOPIC, f"{BROKER}:1:0", "--json").json
    assert found["msg_id"] == ours[0]["msg_id"]
    assert f"UNIQ_KEY={found['msg_id']}" in shown
    assert re.search(rf"OffsetID: +{found['offset_msg_id']}\b", shown), shown
    printed = mqadmin("printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", "1", "-p", "true")
    assert ids(printed) == [one["msg_id"] for one in ours]
    consumed = mqadmin("consumeMessage", "-t", TOPIC, *place, "-c", "1")
    assert ids(consumed) == [ours[0]["msg_id"]]


def ids(lines: list[str]) -> list[str]:
    return re.findall(r"^MSGID: (\S+)", "\n".join(lines), re.MULTILINE)


@beside("queryMsgTraceById")
def test_what_became_of_a_message(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    with Producer("traced-producers", namesrv=cometmq.namesrv, trace=True) as producer:
        sent = producer.send(Message(TOPIC, b"traced"))
    ask = ("message", "trace", sent.msg_id, "--json")
    until(lambda: (done := cometmq(*ask)).code == 0 and done.json)
    (ours,) = cometmq(*ask).json
    (row,) = table(mqadmin("queryMsgTraceById", "-i", sent.msg_id), 7)
    kind, group, _, _, _, took, state = row
    assert (kind, group, took, state) == ("Pub", ours["group"], f"{ours['cost_ms']}ms", "success")
    assert (ours["kind"], ours["is_ok"]) == ("sent", True)


@beside("startMonitoring")
def test_the_lag_of_groups_again_and_again(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    assert cometmq("group", "create", "behind").code == 0
    assert cometmq("group", "reset", "behind", TOPIC, "--to", "earliest", "--yes").code == 0
    until(lambda: {row[5] for row in lag(cometmq, GROUP)} == {"0"})  # Java commits every 5 s
    is_over = threading.Event()
    consumer = PushConsumer("behind", namesrv=cometmq.namesrv, consume_from="first")
    consumer.subscribe(TOPIC, "*", lambda _: is_over.wait(60) and None)
    with consumer:  # mqadmin leaves out groups without members
        until(lambda: cometmq("group", "members", "behind", "--json").json["members"])
        words = ("--watch", "--every", "0.1", "--times", "2", "--json")
        lines = cometmq("group", "lag", "--all", *words).out.splitlines()
        looks = [{row["group"]: row["lag"] for row in json.loads(line)} for line in lines]
        theirs = mqadmin.monitoring()
        assert theirs["behind", TOPIC] == looks[0]["behind"] == looks[1]["behind"] > 4
        assert theirs[GROUP, TOPIC] == looks[1][GROUP] == 0
        is_over.set()


@beside("allocateMQ")
def test_the_division_of_queues(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    members = ("127.0.0.1", "127.0.0.2")
    theirs = json.loads("".join(mqadmin("allocateMQ", "-t", TOPIC, "-i", ",".join(members))))
    ours = cometmq("topic", "allocate", TOPIC, *members, "--json").json
    # mqadmin leaves out that members sort the queues before they divide them
    assert {name: len(each) for name, each in theirs["result"].items()} == {
        name: len(each) for name, each in ours.items()
    }
    assert [one["queue_id"] for each in ours.values() for one in each] == [0, 1, 2, 3]


@beside("statsAll")
def test_traffic(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    (found,) = cometmq("topic", "stats", TOPIC, "--json").json
    theirs = {row[1] for row in table(mqadmin("statsAll", "-t", TOPIC), 3)}
    assert GROUP in theirs
    assert set(found["out"]) >= theirs


@beside(
    "consumerConnection", "consumerProgress", "producerConnection", "consumerStatus", "producer"
)
def test_members_and_lag_of_a_group_in_java(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    (member,) = cometmq("group", "members", GROUP, "--json").json["members"]
    assert member["language"] == "JAVA"
    words = (member["client_id"], member["addr"], member["language"])
    connected = mqadmin("consumerConnection", "-g", GROUP)
    assert any(all(word in line for word in words) for line in connected), connected
    assert lag(cometmq, GROUP) == progress(mqadmin, GROUP)
    rows = cometmq("group", "lag", GROUP, "--topic", TOPIC, "--json").json["queues"]
    assert {row["owner"] for row in rows} == {member["client_id"]}
    names_of = {line.split()[1] for line in mqadmin("consumerStatus", "-g", GROUP) if "@" in line}
    assert names_of == {member["client_id"]}
    info = cometmq("group", "running", GROUP, "--json").json[member["client_id"]]
    assert {queue["topic"] for queue in info["queues"]} >= {TOPIC}
    (producer,) = cometmq("producers", "admin-producers", "--json").json
    connected = mqadmin("producerConnection", "-g", "admin-producers", "-t", TOPIC)
    assert any(producer["client_id"] in line for line in connected)
    of_all = {(row["group"], row["client_id"]) for row in cometmq("producers", "--json").json}
    listed = re.findall(
        r"\((.+?)\) instance : clientId=(\S+?),", "\n".join(mqadmin("producer", "-b", addr))
    )
    assert of_all == set(listed)
    everyone = {row["group"]: row for row in cometmq("group", "lag", "--all", "--json").json}
    assert everyone[GROUP]["members"] == 1


@beside("queryMsgById", "queryMsgByUniqueKey", "queryMsgByKey", "printMsg")
def test_messages(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    (sent,) = cometmq("topic", "send", TOPIC, "body", "--key", "beside", "--json").json
    until(lambda: cometmq("message", "by-key", TOPIC, "beside", "--json").json)
    for words in (
        ("queryMsgById", "-t", TOPIC, "-i", sent["offset_msg_id"]),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent["msg_id"]),
    ):
        shown = "\n".join(mqadmin(*words))
        assert re.search(rf"Queue Offset:\s+{sent['offset']}\b", shown), shown
        found = cometmq("message", "get", TOPIC, words[4], "--json").json
        assert (found["msg_id"], found["body"]) == (sent["msg_id"], "body")
        assert (found["queue_id"], found["offset"]) == (sent["queue_id"], sent["offset"])
    theirs_by_key = table(mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "beside"), 3)
    assert (sent["msg_id"], str(sent["queue_id"]), str(sent["offset"])) in theirs_by_key
    printed = mqadmin("printMsg", "-t", TOPIC, "-d", "true")
    peeked = cometmq("topic", "peek", TOPIC, "--count", "1000", "--json").json
    assert len(peeked) == sum("MSGID" in line for line in printed)
    place = f"{sent['broker']}:{sent['queue_id']}:{sent['offset']}"
    done = cometmq("message", "resend", TOPIC, place, "--group", GROUP, "--json").json
    assert done["result"] == "CR_SUCCESS", done
    tailed = cometmq("topic", "tail", TOPIC, "--oldest", "--count", str(len(peeked)), "--json")
    assert len(tailed.out.splitlines()) == len(peeked)
    by_time = cometmq("message", "by-time", TOPIC, "--begin", "1h", "--json").json
    assert {one["msg_id"] for one in by_time} == {one["msg_id"] for one in peeked}


def test_what_nobody_knows_is_an_error(pair: Pair) -> None:
    cometmq, _, _ = pair
    for words in (("lag", f"{GROUP}s"), ("members", f"{GROUP}s")):
        done = cometmq("group", *words)
        assert (done.code, f"did you mean {GROUP}?" in done.err) == (1, True), done
    done = cometmq("topic", "status", f"{TOPIC}s")
    assert (done.code, f"did you mean {TOPIC}?" in done.err) == (1, True), done


def test_every_daily_command_is_compared_and_has_its_line_on_the_page() -> None:
    tests = [each for module in (globals(), vars(changes)) for each in module.items()]
    marked = [
        test.beside for name, test in tests if hasattr(test, "beside") and name[:5] == "test_"
    ]
    compared = {name for names in marked for name in names}
    assert compared == DAILY
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row[1])} >= DAILY
