"""`cometmq why` on Apache's brokers: what its admin codes give is enough for members of ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from cometmq import MessageExt
    from interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = "WhySlow", "why-slow"


def wait_a_while(_messages: list[MessageExt]) -> None:
    time.sleep(0.1)


def test_few_queues_and_a_paused_member_are_named(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
    with Producer("why", namesrv=apache.namesrv) as producer:
        for number in range(2_000):
            producer.send(Message(TOPIC, b"x", sharding_key=f"k{number % 200}"))
    members = [
        PushConsumer(
            GROUP, namesrv=apache.namesrv, order="queue", consume_threads=8,
            consume_from="first", instance_name=f"m{number}",
        )
        for number in range(2)
    ]  # fmt: skip
    try:
        for member in members:
            member.subscribe(TOPIC, "*", wait_a_while)
            member.start()
        deadline = time.monotonic() + 60
        while not all(len(member.assigned) >= 2 for member in members):
            assert time.monotonic() < deadline, [member.assigned for member in members]
            time.sleep(0.5)
        with Admin(namesrv=apache.namesrv) as admin:
            found = admin.why(GROUP, 4.0)
            assert found.cause.name == "few queues", found.lines()
            assert {change.name for change in found.changes if change.is_gain} >= {"queues"}
            members[0].pause()
            assert admin.why(GROUP, 2.0).cause.name == "paused consumer"
    finally:
        for member in members:
            member.stop()
