"""Heartbeat V2 of the unmodified Java client over a restart of the broker.

Such a client sends its subscriptions until the broker has seen them twice, then light beats
without any. A broker that was started again knows of no subscription and must ask for them.
Apache's 5.5.0 does not: it answers light beats with IS_SUB_CHANGE=false and refuses the client's
pulls (24) until the client is started again, as this test with its broker showed on 2026-11-21.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode
from interop.side_by_side.recording_proxy import Heard, Tap

if TYPE_CHECKING:
    from pathlib import Path

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = "LightBeats", "light-beats"
LIGHT, FULL = True, False


def beats(heard: list[Heard]) -> list[tuple[bool, str | None]]:
    """Of each answered beat of the group: whether it was light, and whether it was to be full."""
    found: list[tuple[bool, str | None]] = []
    for each in list(heard):
        if each.request.code == RequestCode.HEART_BEAT and each.answer is not None:
            body: dict[str, Any] = json.loads(each.request.body)
            if any(consumer["groupName"] == GROUP for consumer in body["consumerDataSet"]):
                found.append((body["withoutSub"], each.answer.ext.get("IS_SUB_CHANGE")))
    return found


def send(namesrv: str, turn: str) -> None:
    with Producer("light-senders", namesrv=namesrv) as producer:
        for n in range(6):
            tag = "wanted" if n % 2 == 0 else "other"
            producer.send(Message(TOPIC, f"{turn} {n}".encode(), tags=tag), timeout_s=30)


def test_a_broker_started_again_asks_for_what_light_beats_leave_out(
    java: JavaHost, tmp_path: Path
) -> None:
    with (
        LocalCluster(tmp_path, apart=True) as cluster,
        Tap(cluster.namesrv, cluster.broker) as tap,
        ThreadPoolExecutor(1) as beside,
    ):
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic(TOPIC, queues=2)
        said = beside.submit(java.run, "LightBeats", tap.namesrv, TOPIC, GROUP, 6, timeout_s=200)
        until(lambda: beats(tap.heard)[-2:] == [(LIGHT, "false")] * 2, 90)
        send(cluster.namesrv, "before")
        cluster.stop_broker()
        known = len(tap.heard)
        tap.away()
        cluster.restart()
        tap.back()
        until(lambda: len(beats(tap.heard[known:])) >= 2, 90)
        send(cluster.namesrv, "after")
        lines = [line for line in said.result(200) if line.startswith(("GOT", "MISSING"))]
    # a rebalance may have more beats sent in full: which of the later ones are light is chance
    assert beats(tap.heard[known:])[:2] == [(LIGHT, "true"), (FULL, "false")]
    wanted = {f"GOT {turn} {n}" for turn in ("before", "after") for n in (0, 2, 4)}
    assert set(lines) == {*wanted, "MISSING 0"}
