"""Dead letters of our client on Apache's broker, chosen by key, message, reason and time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq import Admin, Message, OnFailure, Producer, PushConsumer

if TYPE_CHECKING:
    from interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = "GivenUpByUs", "gives-up"
REASONS = {"a": "no time in it", "b": "no place in it"}


def test_letters_are_chosen_by_key_message_reason_and_time(apache: ApacheCluster) -> None:
    def fail(messages) -> None:
        raise ValueError(REASONS[messages[0].sharding_key])

    consumer = PushConsumer(GROUP, namesrv=apache.namesrv, consume_from="first")
    consumer.subscribe(TOPIC, "*", fail, on_failure=OnFailure.dead_letter())
    cometmq = Commands(apache.namesrv)

    def bodies(command: str, *options: str) -> list[str]:
        done = cometmq("dlq", command, GROUP, *(["--json"] if command == "show" else []), *options)
        assert done.code == 0, done.err
        letters = done.json if command == "show" else list(map(json.loads, done.out.splitlines()))
        return sorted(one["body"] for one in letters)

    with Admin(namesrv=apache.namesrv) as admin:
        until(lambda: admin.clusters().broker_addr_table, 60)
        admin.create_topic(TOPIC, queues=2)
        with Producer("given-up", namesrv=apache.namesrv) as producer, consumer:
            sent = {
                body: producer.send(
                    Message(TOPIC, body.encode(), keys=f"k-{body}", sharding_key=body[0])
                )
                for body in ("a0", "b0", "a1", "b1")
            }
            until(lambda: admin.dead_letters().get(GROUP) == len(sent), 90)
        stored = [one.store_ms for one in admin.find_dead_letters(GROUP)]
        later = max(stored) + 1
        assert admin.find_dead_letters(GROUP, since_ms=later) == []
        assert len(admin.open_dead_letters(GROUP, until_ms=later)) == len(sent)
        for command in ("show", "export"):
            assert bodies(command, "--key", "a") == ["a0", "a1"]
            assert bodies(command, "--key", "k-b1") == ["b1"]
            assert bodies(command, "--message", sent["b0"].msg_id) == ["b0"]
            assert bodies(command, "--reason", "PLACE") == ["b0", "b1"]
        assert admin.drop_dead_letters(GROUP, key="k-a0").done == 1
    assert bodies("show", "--key", "a") == ["a0", "a1"], "show has all that are stored"
    assert bodies("export", "--key", "a") == ["a1"], "export those that are not done"
