"""One store directory under our broker and Apache's in turn: each reads what the other wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.handed_store import (
    COUNT,
    TOPIC,
    bodies,
    found,
    found_whole,
    looked_up,
    looked_up_by_tag,
    send,
)
from interop.handover import leave_apache, leave_ours

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_store_goes_from_ours_to_apache_and_back(
    apache_jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    ours = LocalCluster(tmp_path / "store")
    ours.start()
    with Admin(namesrv=ours.namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
    send(ours.namesrv, "ours")
    leave_ours(ours, how)
    found_whole(tmp_path / "store", capsys)
    if how == "kill":  # as a log that is more than half full leaves its next file
        with (tmp_path / "store" / "commitlog" / f"{1 << 30:020d}").open("xb") as ahead:
            ahead.truncate(1 << 30)

    apache = ApacheCluster(apache_jars, tmp_path)
    try:
        assert found(apache.namesrv, "reader-1", COUNT) == bodies("ours")
        looked_up(apache.broker, "ours")
        looked_up_by_tag(apache.broker)
        send(apache.namesrv, "apache")
        looked_up(apache.broker, "ours", "apache")
        looked_up_by_tag(apache.broker)
    finally:
        leave_apache(apache, how)
    found_whole(tmp_path / "store", capsys)

    with LocalCluster(tmp_path / "store") as again:
        assert found(again.namesrv, "reader-2", 2 * COUNT) == bodies("apache", "ours")
        looked_up(again.broker, "ours", "apache")
        looked_up_by_tag(again.broker)
        send(again.namesrv, "third")
        assert found(again.namesrv, "reader-3", 3 * COUNT) == bodies("apache", "ours", "third")
        looked_up(again.broker, "ours", "apache", "third")
        looked_up_by_tag(again.broker)
    found_whole(tmp_path / "store", capsys)
