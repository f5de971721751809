"""Parked keys on Apache RocketMQ's broker, for which the parking topic is a topic as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.keyed_messages import Seen
from client.short_delay_cluster import until
from cometmq import Admin, Message, OnFailure, Producer, PushConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = "ParkedKeys", "parkers"


def test_a_key_is_parked_over_a_restart_repaired_released_and_redriven(
    apache: ApacheCluster, tmp_path: Path
) -> None:
    seen, bad = Seen(), {b"a1", b"b1"}

    def handle(messages) -> None:
        if messages[0].body in bad:
            raise ValueError("no time in it")
        seen.note(messages)

    def consumer(disk: str) -> PushConsumer:
        one = PushConsumer(
            GROUP,
            namesrv=apache.namesrv,
            order="key",
            consume_from="first",
            state_dir=tmp_path / disk,
            rebalance_s=2.0,
        )
        one.subscribe(TOPIC, "*", handle, on_failure=OnFailure.park())
        return one

    with Admin(namesrv=apache.namesrv) as admin:
        until(lambda: admin.clusters().broker_addr_table, 60)
        admin.create_topic(TOPIC, queues=1)
        with Producer("senders", namesrv=apache.namesrv) as producer:

            def send(*bodies: str) -> None:
                for body in bodies:
                    producer.send(Message(TOPIC, body.encode(), sharding_key=body[0]))

            send("a0", "a1", "b0", "a2", "b1", "c0")
            with consumer("one"):
                until(lambda: len(admin.parked(GROUP)) == 3, 90)
            with consumer("another"):
                send("a3", "b2", "c1")
                until(lambda: len(admin.parked(GROUP)) == 5, 90)
                assert seen.by_key["c"] == ["c0", "c1"]
                first = admin.parked(GROUP, key="a")[0]
                assert admin.repair_parked(GROUP, first, b"a1, at noon")
                assert admin.release_parked(GROUP, key="a").done == 3
                bad.clear()
                assert admin.redrive_parked(GROUP, key="b").done == 2
                send("a4", "b3")
                until(lambda: len(seen.by_key["a"]) == 5 and len(seen.by_key["b"]) == 4, 90)
    assert seen.by_key["a"] == ["a0", "a1, at noon", "a2", "a3", "a4"]
    assert seen.by_key["b"] == ["b0", "b1", "b2", "b3"]
