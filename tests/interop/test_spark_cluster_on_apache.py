"""The archive job on a cluster of Spark, from an Apache RocketMQ cluster of two brokers: exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from interop.apache import ApacheCluster
from spark.archive_on_cluster import COMMIT_ROWS, archive_through_kills
from spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]
COUNT = 5000


@pytest.fixture
def two(apache_jars: Path, tmp_path: Path) -> Iterator[str]:
    """The name server of two Apache brokers."""
    first = ApacheCluster(apache_jars, tmp_path / "a")
    try:
        second = ApacheCluster(
            apache_jars, tmp_path / "b", namesrv=first.namesrv, brokerName="apache-b"
        )
        yield first.namesrv
        second.stop()
    finally:
        first.stop()


def test_an_archive_job_outlives_an_executor_and_a_worker_of_spark(
    two: str, tmp_path: Path
) -> None:
    with Admin(namesrv=two) as admin:
        admin.create_topic("OnCluster", queues=2)
        assert len(admin.queues("OnCluster")) == 4
    with Producer("cluster-on-apache", namesrv=two) as producer:
        producer.send_many([Message("OnCluster", b"%d" % number) for number in range(COUNT)])
    with StandaloneCluster(tmp_path) as cluster:
        done, audit = archive_through_kills(cluster, two, "OnCluster", tmp_path / "table")
    assert (done["rows"], done["misfits"], done["commits"]) == (COUNT, 0, COUNT // COMMIT_ROWS)
    assert audit["is_exact"]
    assert {one["broker"] for one in audit["queues"]} == {"apache-a", "apache-b"}
    assert sum(one["compared"] for one in audit["queues"]) == COUNT
