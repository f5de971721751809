"""Key lanes and failure policies on Apache RocketMQ's broker, which knows nothing of either."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from client.keyed_messages import Seen
from client.short_delay_cluster import until
from cometmq import Admin, Message, OnFailure, Producer, PushConsumer, RetryLater

if TYPE_CHECKING:
    from pathlib import Path

    from interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = "KeyLanes", "by-key"


def test_keys_are_lanes_and_a_restart_repeats_unfinished_messages_only(
    apache: ApacheCluster, tmp_path: Path
) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        until(lambda: admin.clusters().broker_addr_table, 60)
        admin.create_topic(TOPIC, queues=1)
    with Producer("senders", namesrv=apache.namesrv) as producer:
        for step in range(20):
            for key in "abc":
                body = b"bad" if (key, step) == ("c", 3) else b"%s%02d" % (key.encode(), step)
                producer.send(Message(TOPIC, body, sharding_key=key))

    def consumer(handler) -> PushConsumer:
        one = PushConsumer(
            GROUP,
            namesrv=apache.namesrv,
            order="key",
            consume_from="first",
            suspend_ms=50,
            state_dir=tmp_path,
            rebalance_s=2.0,
        )
        policy = {ValueError: OnFailure.dead_letter(after=2), Exception: OnFailure.block()}
        one.subscribe(TOPIC, "*", handler, on_failure=policy)
        return one

    seen, again = Seen(), Seen()

    def stuck(messages) -> None:
        if messages[0].body == b"a05":
            raise RetryLater
        if messages[0].body == b"bad":
            raise ValueError("no such step")
        seen.note(messages)

    with consumer(stuck):
        until(lambda: len(seen.bodies) == 44, 90)
    with consumer(again.note):
        until(lambda: len(again.bodies) >= 15, 90)
        time.sleep(0.5)
    assert seen.by_key["b"] == [f"b{step:02}" for step in range(20)]
    assert seen.by_key["c"] == [f"c{step:02}" for step in range(20) if step != 3]
    assert again.bodies == [f"a{step:02}" for step in range(5, 20)]
    with Admin(namesrv=apache.namesrv) as admin:
        assert sum(o or 0 for o in admin.group_offsets(GROUP, TOPIC).values()) == 60
        until(lambda: f"%DLQ%{GROUP}" in admin.topics())
        stats = admin.topic_stats(f"%DLQ%{GROUP}")
        assert sum(found.max_offset for found in stats.values()) == 1
