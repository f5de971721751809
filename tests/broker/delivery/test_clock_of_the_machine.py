"""The clock of a broker process is set while timers wait, by libfaketime, as the system would."""

from __future__ import annotations

import sys
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Message, Producer, PushConsumer
from cometmq.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq import MessageExt

# its wheel has the library for this kind of machine alone
libfaketime = pytest.importorskip("libfaketime") if sys.platform == "linux" else None
pytestmark = pytest.mark.skipif(libfaketime is None, reason="libfaketime is for Linux")

COUNT, FIRST_S, WRONG_S = 20, 3.0, 1.5
HOUR = 3_600


@pytest.mark.parametrize("step_s", [HOUR, -HOUR])
def test_timers_of_a_broker_process_outlast_its_clock_being_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0s\n")
    cluster = LocalCluster(tmp_path / "store")
    with monkeypatch.context() as patched:
        for name, value in libfaketime.get_reload_information()[1].items():
            patched.setenv(name, value)
        patched.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
        cluster.start()
    try:
        timers_come_once_and_not_early(cluster, offset, step_s)
    finally:
        cluster.stop()


def timers_come_once_and_not_early(cluster: LocalCluster, offset: Path, step_s: int) -> None:
    came: list[tuple[bytes, float]] = []

    def note(messages: list[MessageExt]) -> None:
        came.extend((one.body, time.monotonic()) for one in messages)

    due: dict[bytes, float] = {}
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("T", queues=2)
    consumer = PushConsumer("g", namesrv=cluster.namesrv, consume_from="first")
    consumer.subscribe("T", "*", note)
    with Producer("p", namesrv=cluster.namesrv) as producer, consumer:
        for number in range(COUNT):
            after, body = FIRST_S + number * 0.1, b"%d" % number
            due[body] = time.monotonic() + after
            producer.send(Message("T", body, deliver_after=timedelta(seconds=after)))
        offset.write_text(f"{step_s:+d}s\n")
        until(lambda: "clock" in cluster.stderr)
        assert came == [], "a step ahead makes nothing due"
        time.sleep(WRONG_S)
        offset.write_text("+0s\n")
        until(lambda: len(came) >= COUNT)
        time.sleep(2)  # what would come twice comes by then
    assert Counter(body for body, _ in came) == Counter(due.keys())
    assert min(at - due[body] for body, at in came) >= -0.01, "none is early"
