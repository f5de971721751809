"""Dead letters of a running Java client on Apache's broker, as a table, and back to their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.dead_letters import dead_letters
from cometmq.spark.tables.redrive import redrive
from interop.on_spark import ON_SPARK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cometmq.model.admin_stats import TopicOffset
    from interop.apache import ApacheCluster
    from interop.jvm import JavaHost

pytestmark = ON_SPARK
KEYS, EACH = ("Ada", "Grace", "Mary"), 4


@pytest.fixture
def give_up(apache: ApacheCluster, java: JavaHost) -> Callable[[str, str, str], list[str]]:
    """Have a group of the Java client refuse all messages of a topic; the calls of its listener."""

    def give_up(topic: str, group: str, how: str) -> list[str]:
        said = java.run("GiveUp", apache.namesrv, topic, group, EACH * len(KEYS), how)
        assert "END" in said, said
        assert not [line for line in said if line.startswith("MISSING")], said
        return [line for line in said if line.startswith("GOT")]

    return give_up


@pytest.mark.parametrize("how", ["orderly", "concurrently"])
def test_letters_of_a_java_client_are_a_table_and_go_back_repaired_and_in_order(
    apache: ApacheCluster,
    spark: SparkSession,
    give_up: Callable[[str, str, str], list[str]],
    tmp_path: Path,
    how: str,
) -> None:
    topic, group, namesrv = f"GivenUp-{how}", f"java-gives-up-{how}", apache.namesrv
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=2)
    sent = {}
    with Producer("tables-on-apache", namesrv=namesrv) as producer:
        for number in range(EACH):
            for key in KEYS:
                name = f"{key}{number}"
                message = Message(topic, name.encode(), tags="T", keys=name, sharding_key=key,
                                  properties={"colour": "red"})  # fmt: skip
                sent[name] = producer.send(message)
    calls = give_up(topic, group, how)
    assert len(calls) >= 2 * len(sent), "each was to be refused twice"

    def run() -> int:
        return dead_letters(spark, tmp_path, groups=[group], namesrv=namesrv).rows

    assert (run(), run()) == (len(sent), 0)
    letters = read_archive(spark, tmp_path)
    found = {bytes(row.body).decode(): row for row in letters.collect()}
    assert found.keys() == sent.keys()
    for name, row in found.items():
        assert (row.group, row.origin_topic, row["keys"], row.tags) == (group, topic, name, "T")
        assert (row.sharding_key, row.properties["colour"]) == (name[:-1], "red")
        assert (row.reason, row.origin_queue_id, row.origin_offset) == (None, None, None)
        first = sent[name]
        assert row.origin_message_id == (first.msg_id if how == "orderly" else first.offset_msg_id)
        assert row.attempts == 2

    ends = {queue: end.max_offset for queue, end in _stats(namesrv, topic).items()}
    others = [name for name in letters.columns if name != "body"]
    repaired = letters.where("sharding_key <> 'Mary'").selectExpr(
        *others, "concat('fixed ', cast(body AS string)) AS body"
    )
    assert redrive(repaired, namesrv=namesrv) == {topic: 2 * EACH}
    columns = "queue_id,queue_offset,sharding_key,body,properties"
    read = spark.read.format("rocketmq").options(namesrv=namesrv, topic=topic, columns=columns)
    rows = [row for row in read.load().collect() if row.queue_offset >= ends[row.queue_id]]
    assert len(rows) == 2 * EACH
    rows.sort(key=lambda row: (row.queue_id, row.queue_offset))
    for key in ("Ada", "Grace"):
        mine = [row for row in rows if row.sharding_key == key]
        bodies = [bytes(row.body).decode() for row in mine]
        assert len({row.queue_id for row in mine}) == 1
        # concurrently they are given up in any order, and Java's letters have no other place
        found_in_order = bodies if how == "orderly" else sorted(bodies)
        assert found_in_order == [f"fixed {key}{number}" for number in range(EACH)]
        assert {row.properties["colour"] for row in mine} == {"red"}
        names = {name for row in mine for name in row.properties}
        assert not names & {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"}


def _stats(namesrv: str, topic: str) -> dict[int, TopicOffset]:
    with Admin(namesrv=namesrv) as admin:
        return {queue.queue_id: end for queue, end in admin.topic_stats(topic).items()}
