"""topic create, list and status against a running cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.in_process import cometmq
from cli.shell import sentence
from cometmq import Admin, Message, MessageQueue, Producer
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.bodies.group import decode_group_config
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import (
    CreateTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)


def test_a_created_topic_is_listed_and_looked_at(namesrv: str) -> None:
    done = cometmq("topic", "create", "orders", "--queues", "3", "-n", namesrv)
    assert (done.returncode, done.stdout) == (0, "orders: 3 queues\n")
    listed = cometmq("topic", "list", "-n", namesrv).stdout.splitlines()
    assert "orders" in listed
    assert "TBW102" not in listed
    everything = cometmq("topic", "list", "--system", NAMESRV_ADDR=namesrv).stdout.splitlines()
    assert {"orders", "TBW102"} <= set(everything)
    lines = cometmq("topic", "status", "orders", "-n", namesrv).stdout.splitlines()
    assert lines[0].split() == ["broker", "queue", "first", "next", "messages", "last"]
    assert [line.split() for line in lines[1:4]] == [
        ["broker-a", str(queue), "0", "0", "0"] for queue in range(3)
    ]
    assert lines[4].split() == ["all", "0"]
    with Producer("clerk", namesrv=namesrv) as producer:
        producer.send(Message("orders", b"one"))
    lines = cometmq("topic", "status", "orders", "-n", namesrv).stdout.splitlines()
    (used,) = [line.split() for line in lines[1:4] if len(line.split()) == 6]
    assert used[2:5] == ["0", "1", "1"]
    assert abs((datetime.fromisoformat(used[5]) - datetime.now(UTC)).total_seconds()) < 60


def test_a_topic_in_global_order_has_one_queue_and_does_not_grow(namesrv: str) -> None:
    order = ("--order", "global", "-n", namesrv)
    expected = (0, "ledger: 1 queue on broker-a, in global order\n")
    for _ in range(2):
        done = cometmq("topic", "create", "ledger", *order, "--group", "clerks")
        assert (done.returncode, done.stdout) == expected
    said = sentence(cometmq("topic", "create", "ledger", "--queues", "4", "-n", namesrv))
    assert "keeps all its messages in one order" in said
    assert "broker-a" in said
    said = sentence(cometmq("topic", "alter", "ledger", "--queues", "4", "-n", namesrv))
    assert "keeps all its messages in one order" in said
    cometmq("topic", "create", "wide", "--queues", "4", "-n", namesrv)
    assert "exists with 4 queues" in sentence(cometmq("topic", "create", "wide", *order))
    with BlockingChannel(_broker_of(namesrv), 5.0) as channel:
        grown = CreateTopicRequestHeader(
            topic="ledger", default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6
        )
        answer = channel.call(RequestCode.UPDATE_AND_CREATE_TOPIC, grown)
        assert (answer.code, "one queue" in (answer.remark or "")) == (29, True)
        header = GetSubscriptionGroupConfigRequestHeader(group="clerks")
        answer = channel.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert decode_group_config(answer.body).consume_message_orderly


def test_a_topic_that_exists_is_altered_and_not_created_anew(namesrv: str) -> None:
    cometmq("topic", "create", "grown", "--queues", "4", "--order", "keys", "-n", namesrv)
    said = sentence(cometmq("topic", "create", "grown", "--queues", "2", "-n", namesrv))
    assert "exists on broker-a (4 read and 4 write queues)" in said
    assert "cometmq topic alter grown" in said
    done = cometmq("topic", "alter", "grown", "--queues", "6", "-n", namesrv)
    assert (done.returncode, done.stdout) == (0, "grown: altered\n")
    with Producer("clerk", namesrv=namesrv) as producer:
        for queue_id in range(6):
            producer.send(
                Message("grown", b"one"), queue=MessageQueue("grown", "broker-a", queue_id)
            )
    said = sentence(cometmq("topic", "alter", "grown", "--queues", "3", "-n", namesrv))
    assert "3 queues of grown" in said
    assert "3 messages lie in them (broker-a 3: 1, broker-a 4: 1, broker-a 5: 1)" in said
    assert "--yes" in said
    lines = cometmq("topic", "status", "grown", "-n", namesrv).stdout.splitlines()
    assert lines[-1].split() == ["all", "6"], "nothing has changed"
    done = cometmq("topic", "alter", "grown", "--queues", "3", "--yes", "-n", namesrv)
    assert done.returncode == 0
    lines = cometmq("topic", "status", "grown", "-n", namesrv).stdout.splitlines()
    assert lines[-1].split() == ["all", "3"]


def test_a_topic_may_be_for_sends_only(namesrv: str) -> None:
    done = cometmq("topic", "create", "inbox", "--perm", "w", "-n", namesrv)
    assert (done.returncode, done.stdout) == (0, "inbox: created, write only\n")
    done = cometmq("topic", "alter", "inbox", "--perm", "rw", "--read-queues", "9", "-n", namesrv)
    assert done.returncode == 0
    assert len(cometmq("topic", "status", "inbox", "-n", namesrv).stdout.splitlines()) == 11


def _broker_of(namesrv: str) -> str:
    with Admin(namesrv=namesrv) as admin:
        addr = admin.clusters().broker_addr_table["broker-a"].master
        assert addr is not None
        return addr


@pytest.mark.parametrize(
    "call",
    [("--order", "global", "--queues", "3"), ("--group", "g"), ("--order", "keys", "--group", "g")],
)
def test_options_that_exclude_each_other_are_a_usage_error(call: tuple[str, ...]) -> None:
    assert cometmq("topic", "create", "x", *call).returncode == 2


@pytest.mark.parametrize("call", [("create", "x", "--queues", "65537"), ("alter", "x")])
def test_too_many_queues_and_nothing_to_alter_are_a_usage_error(call: tuple[str, ...]) -> None:
    assert cometmq("topic", *call).returncode == 2


def test_an_unknown_topic_and_a_bad_name_are_one_sentence_errors(namesrv: str) -> None:
    assert "nope" in sentence(cometmq("topic", "status", "nope", "-n", namesrv))
    assert "bad name" in sentence(cometmq("topic", "create", "bad name", "-n", namesrv))
