"""One store directory under our broker and Apache's in turn: each reads what the other wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.test_apache_cluster import read

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
TOPIC, COUNT = "Hands", 200


def send(namesrv: str, name: str) -> None:
    with Producer("hands", namesrv=namesrv) as producer:
        for n in range(COUNT):
            producer.send(Message(TOPIC, f"{name} {n}".encode(), tags="t", keys=f"{name}-{n}"))


def bodies(*names: str) -> list[bytes]:
    return sorted(f"{name} {n}".encode() for name in names for n in range(COUNT))


def found(namesrv: str, group: str, count: int) -> list[bytes]:
    return sorted(message.body for message in read(namesrv, TOPIC, group, count))


def leave_apache(cluster: ApacheCluster, how: str) -> None:
    if how == "kill":
        cluster._roles[-1]._child.kill()
    cluster.stop()


def leave_ours(cluster: LocalCluster, how: str) -> None:
    if how == "kill":
        cluster.kill()
    cluster.stop()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_store_goes_from_ours_to_apache_and_back(
    apache_jars: Path, tmp_path: Path, how: str
) -> None:
    ours = LocalCluster(tmp_path / "store")
    ours.start()
    with Admin(namesrv=ours.namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
    send(ours.namesrv, "ours")
    leave_ours(ours, how)

    apache = ApacheCluster(apache_jars, tmp_path)
    try:
        assert found(apache.namesrv, "reader-1", COUNT) == bodies("ours")
        send(apache.namesrv, "apache")
    finally:
        leave_apache(apache, how)

    with LocalCluster(tmp_path / "store") as again:
        assert found(again.namesrv, "reader-2", 2 * COUNT) == bodies("apache", "ours")
        send(again.namesrv, "third")
        assert found(again.namesrv, "reader-3", 3 * COUNT) == bodies("apache", "ours", "third")
