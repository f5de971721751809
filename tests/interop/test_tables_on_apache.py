"""The table jobs on topics of Apache RocketMQ's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq import Admin, ConsumeFrom, Message, Producer, PushConsumer
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.spark.tables.backlog import backlog
from interop.on_spark import ON_SPARK

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.apache import ApacheCluster

pytestmark = ON_SPARK


def fill(namesrv: str, topic: str, numbers: range) -> None:
    with Producer("tables-on-apache", namesrv=namesrv) as producer:
        for number in numbers:
            body = b'{"n": %d}' % number if number % 10 else b"no JSON %d" % number
            producer.send(Message(topic, body, keys=f"k{number}"))


def test_an_archive_of_an_apache_broker_is_exact_and_goes_on(
    apache: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("Archived", queues=3)
    fill(apache.namesrv, "Archived", range(1000))

    def run() -> tuple[int, int]:
        done = archive(
            spark, "Archived", tmp_path, namesrv=apache.namesrv, schema="n int", max_rows=600
        )
        return done.rows, done.misfits

    assert run() == (900, 100)
    assert run() == (0, 0)
    fill(apache.namesrv, "Archived", range(1000, 1100))
    assert run() == (90, 10)
    rows = read_archive(spark, tmp_path).collect()
    assert sorted(row.value.n for row in rows) == [n for n in range(1100) if n % 10]
    assert all(row.properties["KEYS"] == f"k{row.value.n}" for row in rows)
    audit = verify_archive(spark, tmp_path, namesrv=apache.namesrv, bodies=True)
    assert audit.is_exact
    assert sum(one.compared or 0 for one in audit.queues) == 1100


def test_the_backlog_of_groups_of_an_apache_broker(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("Behind", queues=2)
        queues = admin.queues("Behind")
    with Producer("tables-on-apache", namesrv=apache.namesrv) as producer:
        for number in range(40):
            producer.send(Message("Behind", b"%d" % number), queue=queues[number % 2])
    consumer = PushConsumer("laggards", namesrv=apache.namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("Behind", "*", lambda messages: None)
    with consumer:
        pass  # the group is known now
    with Admin(namesrv=apache.namesrv) as admin:
        admin.set_group_offsets("laggards", {queues[0]: 5, queues[1]: 20})
        assert "laggards" in admin.groups()
    rows = backlog(namesrv=apache.namesrv, over_s=0.2)
    (row,) = [one for one in rows if one.group == "laggards"]
    assert (row.topic, row.lag, row.queues, row.skew) == ("Behind", 15, 2, 2.0)
    assert row.longest_queue == "apache-a:0"
    assert (row.out_rate, row.drain_s, row.dead_letters) == (0.0, None, 0)
