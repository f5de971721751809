"""Delayed messages of ours and Apache's under the other broker: none lost, places understood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.handover import leave_apache, leave_ours, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC = "DelaysHands"
COUNT = 20
TABLE = {"message_delay_level": "1s 25s"}
THEIRS = {"messageDelayLevel": "1s 25s"}


def send(namesrv: str, name: str, *levels: int) -> list[bytes]:
    """Send so many to each level; gives the bodies."""
    bodies = [f"{name} {level} {n}".encode() for level in levels for n in range(COUNT)]
    with Producer("delays", namesrv=namesrv) as producer:
        for body in bodies:
            level = int(body.split()[1])
            producer.send(Message(TOPIC, body, delay_level=level))
    return bodies


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_waits_goes_on_waiting_under_the_other_broker(
    apache_jars: Path, tmp_path: Path, how: str
) -> None:
    ours = LocalCluster(tmp_path / "store", **TABLE)
    ours.start()
    with Admin(namesrv=ours.namesrv) as admin:
        admin.create_topic(TOPIC, queues=2)
    sent = send(ours.namesrv, "ours", 1, 2)
    wait_for(ours.namesrv, TOPIC, "before", sent[:COUNT])
    leave_ours(ours, how)

    apache = ApacheCluster(apache_jars, tmp_path, **THEIRS)
    try:
        wait_for(apache.namesrv, TOPIC, "between", sent)
        sent += send(apache.namesrv, "apache", 1, 2)
        wait_for(apache.namesrv, TOPIC, "between-2", sent[: 3 * COUNT])
    finally:
        leave_apache(apache, how)

    with LocalCluster(tmp_path / "store", **TABLE) as again:
        came = wait_for(again.namesrv, TOPIC, "after", sent)
        assert set(came) == set(sent)
        apaches = [body for body in came if body.startswith(b"apache")]
        assert len(apaches) == 2 * COUNT, "what Apache delivered is not delivered again"


def test_apache_reads_the_places_of_several_runs(apache_jars: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with LocalCluster(store, message_delay_level="40s") as ours:
        with Admin(namesrv=ours.namesrv) as admin:
            admin.create_topic(TOPIC, queues=2)
        sent = send(ours.namesrv, "long", 1)
    with LocalCluster(store, message_delay_level="1s") as ours:
        sent += send(ours.namesrv, "short", 1)
        wait_for(ours.namesrv, TOPIC, "before", sent[COUNT:])
    assert "cometmqRuns" in json.loads((store / "config" / "delayOffset.json").read_text())
    apache = ApacheCluster(apache_jars, tmp_path, messageDelayLevel="1s")
    try:
        assert set(wait_for(apache.namesrv, TOPIC, "after", sent)) == set(sent)
    finally:
        leave_apache(apache, "stop")
