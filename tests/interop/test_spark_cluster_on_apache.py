"""The archive job on a cluster of Spark, from an Apache RocketMQ cluster of two brokers: exact."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from interop.apache import ApacheCluster
from spark.standalone import StandaloneCluster
from spark.test_cluster_faults import wait_for_commits

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
    place = tmp_path / "table"
    given = (str(place), "-n", two, "--json")
    with StandaloneCluster(tmp_path) as cluster:
        job = cluster.command("pipeline", "archive", "OnCluster", *given, "--max-rows", "500")
        try:
            wait_for_commits(place, 2)
            cluster.kill_executor(0)
            wait_for_commits(place, 5)
            cluster.kill_worker(1)
            done = json.loads(job.result(400))
        finally:
            job.kill()
        assert (done["rows"], done["misfits"], done["commits"]) == (COUNT, 0, COUNT // 500)
        audit = json.loads(cluster.command("pipeline", "verify", *given, "--bodies").result(400))
    assert audit["is_exact"]
    assert {one["broker"] for one in audit["queues"]} == {"apache-a", "apache-b"}
    assert sum(one["compared"] for one in audit["queues"]) == COUNT
