"""The commands that send and find messages, against a running broker."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Producer, PushConsumer

if TYPE_CHECKING:
    from cli.in_process import Commands

_numbers = count()


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"notes-{next(_numbers)}"
    admin.create_topic(name, 2)
    return name


def test_messages_are_sent_peeked_and_tailed(cometmq: Commands, topic: str) -> None:
    sent = cometmq(
        *("topic", "send", topic, "hello", "--tag", "T", "--key", "k", "--property", "a=b"),
        *("--count", "3", "--json"),
    ).json
    assert [one["status"] for one in sent] == ["SEND_OK"] * 3
    line = cometmq("topic", "send", topic, "last", "--sharding-key", "s").out
    assert line.startswith("SEND_OK ")
    assert line.endswith(" ms\n")
    found = cometmq("topic", "peek", topic, "--json").json
    assert [one["body"] for one in found] == ["hello"] * 3 + ["last"]
    assert (found[0]["tags"], found[0]["keys"], found[0]["properties"]["a"]) == ("T", ["k"], "b")
    assert found[3]["sharding_key"] == "s"
    assert cometmq("topic", "peek", topic, "--count", "1").out.endswith("'last'\n")
    oldest = cometmq("topic", "peek", topic, "--count", "1", "--oldest", "--json").json
    assert oldest[0]["msg_id"] == found[0]["msg_id"]
    place = f"{sent[0]['broker']}:{sent[0]['queue_id']}"
    one_queue = cometmq("topic", "peek", topic, "--queue", place, "--json").json
    assert {one["queue_id"] for one in one_queue} == {sent[0]["queue_id"]}
    for words in (("--oldest",), ("--since", "1h")):
        tailed = cometmq("topic", "tail", topic, *words, "--count", "4", "--json")
        ids = {json.loads(text)["msg_id"] for text in tailed.out.splitlines()}
        assert ids == {one["msg_id"] for one in found}


def test_a_message_is_found_by_id_place_key_and_time(
    cometmq: Commands, admin: Admin, topic: str
) -> None:
    (sent,) = cometmq("topic", "send", topic, "hello", "--key", "order-1", "--json").json
    until(lambda: admin.messages_by_key(topic, "order-1"))
    place = f"{sent['broker']}:{sent['queue_id']}:{sent['offset']}"
    for each in (sent["msg_id"], sent["offset_msg_id"], place):
        found = cometmq("message", "get", topic, each, "--json").json
        assert (found["msg_id"], found["body"]) == (sent["msg_id"], "hello")
    lines = cometmq("message", "get", topic, place).out.splitlines()
    assert {f"msg_id: {sent['msg_id']}", "keys: order-1", "hello"} <= set(lines)
    (by_key,) = cometmq("message", "by-key", topic, "order-1", "--begin", "1h", "--json").json
    (by_time,) = cometmq("message", "by-time", topic, "--begin", "1h", "--json").json
    assert by_key == by_time
    assert sent["msg_id"] in cometmq("message", "by-time", topic, "--begin", "1h").out
    assert cometmq("message", "by-key", topic, "other").out == ""
    for each, said in (("nope", "no message of the topic"), (f"{place}9", "has no message at")):
        done = cometmq("message", "get", topic, each)
        assert (done.code, said in done.err) == (1, True)
    assert cometmq("message", "by-time", topic, "--begin", "soon").code == 2


def test_a_message_is_sent_again_or_handed_to_one_member(
    cometmq: Commands, namesrv: str, topic: str
) -> None:
    (sent,) = cometmq("topic", "send", topic, "hello", "--key", "k", "--json").json
    place = f"{sent['broker']}:{sent['queue_id']}:{sent['offset']}"
    assert cometmq("message", "resend", topic, place).code == 2
    again = cometmq("message", "resend", topic, place, "--yes", "--json").json
    assert again["msg_id"] != sent["msg_id"]
    bodies = [one["body"] for one in cometmq("topic", "peek", topic, "--json").json]
    assert bodies == ["hello", "hello"]
    seen: list[object] = []
    consumer = PushConsumer(f"of-{topic}", namesrv=namesrv, consume_from="first")
    consumer.subscribe(topic, "*", seen.extend)
    with consumer:
        until(lambda: len(seen) == 2)
        done = cometmq("message", "resend", topic, place, "--group", f"of-{topic}")
        assert done.out.startswith("CR_SUCCESS in ")
        assert len(seen) == 3


def test_a_trace_is_shown(cometmq: Commands, admin: Admin, namesrv: str, topic: str) -> None:
    with Producer("clerk", namesrv=namesrv, trace=True) as producer:
        from cometmq import Message

        sent = producer.send(Message(topic, b"x"))
    until(lambda: admin.message_trace(sent.msg_id))
    _, row = cometmq("message", "trace", sent.msg_id).rows
    assert row[1:4] == ["sent", "clerk", "ok"]
    assert cometmq("message", "trace", sent.msg_id, "--json").json[0]["kind"] == "sent"
    assert "nobody" in cometmq("message", "trace", "0" * 32).out


def test_what_does_not_fit_is_a_usage_error_or_one_sentence(cometmq: Commands, topic: str) -> None:
    for words in (
        ("send", topic, "x", "--property", "a"),
        ("peek", topic, "--queue", "broker-a"),
        ("tail", topic, "--oldest", "--since", "1h"),
    ):
        assert cometmq("topic", *words).code == 2, words
    for words in (("send", f"{topic}x", "x"), ("peek", f"{topic}x"), ("tail", f"{topic}x")):
        done = cometmq("topic", *words)
        assert (done.code, f"did you mean {topic}?" in done.err) == (1, True), done
    assert cometmq("message", "resend", topic, "x", "--member", "m").code == 2
