"""Messages at a time of their own under the other broker: none lost, none early; recalls."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.handover import leave_apache, leave_ours, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC = "TimersHands"
COUNT = 20


def send(namesrv: str, name: str, *delays_s: float) -> dict[bytes, datetime]:
    """Send so many for each delay; gives when each is due."""
    due: dict[bytes, datetime] = {}
    with Producer("timers", namesrv=namesrv) as producer:
        for delay_s in delays_s:
            for number in range(COUNT):
                body = f"{name} {delay_s} {number}".encode()
                due[body] = datetime.now(UTC) + timedelta(seconds=delay_s)
                producer.send(Message(TOPIC, body, deliver_at=due[body]))
    return due


def recall_one(namesrv: str) -> None:
    """Send one more and take it back."""
    with Producer("timers", namesrv=namesrv) as producer:
        message = Message(TOPIC, b"recalled", deliver_after=timedelta(seconds=3))
        sent = producer.send(message)
        assert sent.recall_handle
        assert producer.recall(TOPIC, sent.recall_handle) == sent.msg_id


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_timers_go_on_waiting_under_the_other_broker(
    apache_jars: Path, tmp_path: Path, how: str
) -> None:
    ours = LocalCluster(tmp_path / "store", recall_message_enable=True)
    ours.start()
    with Admin(namesrv=ours.namesrv) as admin:
        admin.create_topic(TOPIC, queues=2)
    due = send(ours.namesrv, "ours", 1, 30, 80)
    recall_one(ours.namesrv)
    early = [body for body in due if b" 1 " in body]
    wait_for(ours.namesrv, TOPIC, "before", early)
    leave_ours(ours, how)

    apache = ApacheCluster(apache_jars, tmp_path, recallMessageEnable="true")
    try:
        due |= send(apache.namesrv, "apache", 1, 45)
        recall_one(apache.namesrv)
        soon = [body for body in due if b" 1 " in body or body.startswith(b"ours 30 ")]
        wait_for(apache.namesrv, TOPIC, "between", soon)
        time.sleep(3)  # Apache's broker notes once a second how far it is
    finally:
        leave_apache(apache, how)

    with LocalCluster(tmp_path / "store") as again:
        came = wait_for(again.namesrv, TOPIC, "after", list(due))
        assert set(came) == set(due), "none is lost, and no recalled one comes"
        if how == "stop":
            assert len(came) == len(due), "what the other broker delivered is not delivered again"
        assert datetime.now(UTC) >= max(due.values())
