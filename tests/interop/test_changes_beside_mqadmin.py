"""`cometmq` commands change Apache's broker and ours as mqadmin 5.5.0 does.

Each change is made by the one and looked at by the other, both ways where both can make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from interop.beside_mqadmin import (
    BROKER,
    CLUSTER,
    GROUP,
    TOPIC,
    beside,
    known,
    lag,
    progress,
    properties,
    route,
    table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from interop.beside_mqadmin import Pair

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@beside("updateTopic", "updateTopicPerm", "deleteTopic")
def test_topics_are_made_changed_and_deleted(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    mqadmin("updateTopic", "-c", CLUSTER, "-t", "ByThem", "-r", "3", "-w", "2")
    words = ("--read-queues", "3", "--write-queues", "2")
    assert cometmq("topic", "create", "ByUs", *words).code == 0
    assert route(mqadmin, "ByUs") == route(mqadmin, "ByThem")
    assert brokers(pair, "ByUs") == brokers(pair, "ByThem")
    mqadmin("updateTopicPerm", "-c", CLUSTER, "-t", "ByThem", "-p", "4")
    assert cometmq("topic", "alter", "ByUs", "--perm", "r").code == 0
    assert [one["perm"] for one in route(mqadmin, "ByUs")] == [4]
    assert [one["perm"] for one in brokers(pair, "ByThem")] == ["r"]
    assert cometmq("topic", "delete", "ByThem", "--yes").code == 0
    mqadmin("deleteTopic", "-c", CLUSTER, "-t", "ByUs")
    left = set(mqadmin("topicList"))
    assert not {"ByThem", "ByUs"} & left
    assert not {"ByThem", "ByUs"} & set(cometmq("topic", "list", "--json").json)


def brokers(pair: Pair, topic: str) -> list[dict[str, Any]]:
    found = pair.cometmq("topic", "route", topic, "--json").json["brokers"]
    assert isinstance(found, list)
    return found


@beside("updateSubGroup", "deleteSubGroup")
def test_groups_are_made_changed_and_deleted(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    assert cometmq("group", "create", "by-us", "--retry-max-times", "7").code == 0
    mqadmin("updateSubGroup", "-c", CLUSTER, "-g", "by-them", "-r", "7", "-m", "true", "-d", "true")
    by_us, by_them = known(mqadmin, "by-us"), known(mqadmin, "by-them")
    assert by_us.pop("groupName") != by_them.pop("groupName")
    assert (by_us["retryMaxTimes"], by_us) == ("7", by_them)
    # each changes the other's
    mqadmin("updateSubGroup", "-c", CLUSTER, "-g", "by-us", "-r", "5", "-s", "false")
    assert cometmq("group", "alter", "by-them", "--retry-max-times", "5", "--no-consume").code == 0
    for group in ("by-us", "by-them"):
        assert known(mqadmin, group)["retryMaxTimes"] == "5"
        assert known(mqadmin, group)["consumeEnable"] == "false"
        (settings,) = cometmq("group", "show", group, "--json").json["settings"].values()
        assert (settings["retry_max_times"], settings["consume_enable"]) == (5, False)
    assert known(mqadmin, "by-them")["consumeBroadcastEnable"] == "true", "the rest stays"
    assert cometmq("group", "delete", "by-them", "--yes").code == 0
    said = mqadmin("deleteSubGroup", "-c", CLUSTER, "-g", "by-us", "-r", "true")
    assert "success" in said[0], said
    assert not {"by-us", "by-them"} & set(cometmq("group", "list", "--json").json)


@beside("resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset", "consumerProgress")
def test_groups_are_moved_and_cloned(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    groups = ("moved-by-us", "moved-by-them", "cloned-by-us", "cloned-by-them")
    for name in groups:  # mqadmin asks the route of a group's retry topic
        assert cometmq("group", "create", name).code == 0
        assert cometmq("topic", "create", f"%RETRY%{name}", "--queues", "1").code == 0
    ours, theirs, our_clone, their_clone = groups
    for to, timestamp in (("earliest", "0"), ("1h", "0")):
        assert cometmq("group", "reset", ours, TOPIC, "--to", to, "--yes").code == 0
        mqadmin("resetOffsetByTime", "-g", theirs, "-t", TOPIC, "-s", timestamp)
        assert len(lag(cometmq, ours)) == 4
        assert lag(cometmq, ours) == lag(cometmq, theirs), to
        assert progress(mqadmin, ours) == progress(mqadmin, theirs) == lag(cometmq, ours), to
    assert cometmq("group", "clone", ours, our_clone, "--yes").code == 0
    mqadmin("cloneGroupOffset", "-s", ours, "-d", their_clone, "-t", TOPIC, "-o", "true")
    assert progress(mqadmin, our_clone) == progress(mqadmin, their_clone) == lag(cometmq, ours)
    assert cometmq("group", "skip", ours, TOPIC, "--yes").code == 0
    mqadmin("skipAccumulatedMessage", "-g", theirs, "-t", TOPIC)
    assert progress(mqadmin, ours) == progress(mqadmin, theirs)
    assert {row[5] for row in lag(cometmq, theirs)} == {"0"}


def test_offsets_are_saved_and_restored(pair: Pair, tmp_path: Path) -> None:
    cometmq, mqadmin, _ = pair
    assert cometmq("group", "create", "made", "--retry-max-times", "7").code == 0
    assert "7" in properties(mqadmin("getConsumerConfig", "-g", "made")).values()
    for name in ("made", "cloned"):  # mqadmin asks the route of a group's retry topic
        cometmq("topic", "create", f"%RETRY%{name}", "--queues", "1")
    for to in ("latest", "1", "earliest", "1h"):
        assert cometmq("group", "reset", "made", TOPIC, "--to", to, "--yes").code == 0
        rows = lag(cometmq, "made")
        assert len(rows) == 4
        assert rows == progress(mqadmin, "made"), to
    assert cometmq("group", "skip", "made", TOPIC, "--yes").code == 0
    assert {row[5] for row in progress(mqadmin, "made")} == {"0"}
    assert cometmq("group", "clone", "made", "cloned", "--yes").code == 0
    assert progress(mqadmin, "cloned") == progress(mqadmin, "made")
    file = str(tmp_path / "offsets.json")
    assert cometmq("offsets", "export", "made", "-o", file).code == 0
    before = progress(mqadmin, "made")
    assert cometmq("group", "reset", "made", TOPIC, "--to", "0", "--yes").code == 0
    assert progress(mqadmin, "made") != before
    assert cometmq("offsets", "import", file, "--yes").code == 0
    assert progress(mqadmin, "made") == before
    assert cometmq("group", "delete", "made", "--yes").code == 0
    assert "made" not in cometmq("group", "list", "--json").json
    metadata = cometmq("brokers", "metadata").json[BROKER]
    assert TOPIC in metadata["topics"]
    assert "cloned" in metadata["groups"]


def test_a_running_group_in_java_goes_where_it_is_moved(pair: Pair) -> None:
    cometmq, _, _ = pair

    def owned() -> list[dict[str, Any]]:
        rows = cometmq("group", "lag", GROUP, "--topic", TOPIC, "--json").json["queues"]
        assert isinstance(rows, list)
        return rows

    until(lambda: all(row["lag"] == 0 for row in owned()))
    moved = cometmq("group", "reset", GROUP, TOPIC, "--to", "earliest", "--yes", "--json").json
    assert {row["after"] for row in moved["queues"]} == {0}
    until(lambda: all(row["lag"] == 0 for row in owned()), 60)


@beside("updateBrokerConfig", "updateNamesrvConfig")
def test_settings_are_changed(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    key = "maxTransferCountOnMessageInMemory"
    assert cometmq("brokers", "config", "set", BROKER, f"{key}=31").code == 0
    assert properties(mqadmin("getBrokerConfig", "-b", addr))[key] == "31"
    mqadmin("updateBrokerConfig", "-b", addr, "-k", key, "-v", "30")
    assert cometmq("brokers", "config", "get", BROKER, key, "--json").json == {key: "30"}
    key = "orderMessageEnable"
    mqadmin("updateNamesrvConfig", "-k", key, "-v", "true")
    (found,) = cometmq("nameservers", "config", "get", key, "--json").json.values()
    assert found == {key: "true"}
    assert cometmq("nameservers", "config", "set", f"{key}=false").code == 0
    assert properties(mqadmin("getNamesrvConfig"))[key] == "false"


@beside("wipeWritePerm", "addWritePerm")
def test_a_broker_is_taken_out_of_writing_and_back(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    for ours, theirs, perm in (
        ("wipe-write", "wipeWritePerm", 4),
        ("restore-write", "addWritePerm", 6),
    ):
        assert cometmq("brokers", ours, BROKER).code == 0
        assert [one["perm"] for one in route(mqadmin, TOPIC)] == [perm]
        assert cometmq("brokers", "restore-write" if perm == 4 else "wipe-write", BROKER).code == 0
        mqadmin(theirs, "-b", BROKER)
        assert [one["perm"] for one in brokers(pair, TOPIC)] == [{4: "r", 6: "rw"}[perm]]


@beside("sendMessage", "checkMsgSendRT")
def test_messages_are_sent_and_their_sends_timed(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    queue = ("-b", BROKER, "-i", "2")
    rows = table(
        mqadmin("sendMessage", "-t", TOPIC, "-p", "theirs", "-k", "key", "-c", "tag", *queue), 4
    )
    ((broker, queue_id, status, msg_id),) = rows
    words = ("--key", "key", "--tag", "tag", "--queue", f"{BROKER}:2", "--json")
    (ours,) = cometmq("topic", "send", TOPIC, "ours", *words).json
    assert (broker, queue_id, status) == (ours["broker"], str(ours["queue_id"]), ours["status"])
    newest = cometmq(
        "topic", "peek", TOPIC, "--queue", f"{BROKER}:2", "--count", "2", "--json"
    ).json
    assert [(one["msg_id"], one["body"]) for one in newest] == [
        (msg_id, "theirs"),
        (ours["msg_id"], "ours"),
    ]
    assert {(one["tags"], tuple(one["keys"])) for one in newest} == {("tag", ("key",))}
    timed = mqadmin("checkMsgSendRT", "-t", TOPIC, "-a", "3", "-s", "64")
    took = [row for row in table(timed, 4) if row[0] == BROKER]
    assert len(took) == 3, timed
    assert timed[-1].startswith("Avg RT:")
    ours_timed = cometmq("topic", "send", TOPIC, "x" * 64, "--count", "3", "--json").json
    assert len(ours_timed) == 3
    assert all(0 < one["took_ms"] < 60_000 for one in ours_timed)


@beside("setConsumeMode")
def test_what_is_about_pop_is_said_to_be_that(pair: Pair) -> None:
    """Apache's broker takes it for POP's consumers; ours has none, and says so."""
    cometmq, mqadmin, addr = pair
    assert cometmq("group", "create", "mode").code == 0
    said = "\n".join(mqadmin("setConsumeMode", "-b", addr, "-t", TOPIC, "-g", "mode", "-m", "PULL"))
    assert "success" in said or "SET_MESSAGE_REQUEST_MODE (401) not supported" in said, said
