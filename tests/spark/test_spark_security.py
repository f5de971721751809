"""Keys and TLS with Spark itself: source, sink and handlers at a gate that wants both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from cometmq.spark import listen
from cometmq.wire.codes import RequestCode
from spark.guarded import KEYS, WRONG, Gate
from spark.streams import Stream, said, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cometmq import MessageExt
    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
PEM = Path(__file__).parents[1] / "client" / "session" / "localhost.pem"
SECURITY = {**KEYS, "tls": "true", "tlsCaFile": str(PEM)}


@pytest.fixture
def gate(live: Live) -> Iterator[Gate]:
    with Gate(live.namesrv, live.broker, PEM) as standing:
        yield standing


def test_batches_and_streams_are_read_with_keys_that_no_plan_shows(
    spark: SparkSession, live: Live, gate: Gate, topic: str, tmp_path: Path
) -> None:
    live.send(topic, 0, texts(500))
    where = {"namesrv": gate.addr, "topic": topic, **SECURITY}
    frame = spark.read.format("rocketmq").options(**where).load()
    assert frame.count() == 500
    plan = frame._jdf.queryExecution().toString()  # what `explain("extended")` prints
    stream = Stream(spark, {**where, "startingOffsets": "earliest"}, tmp_path)
    query = stream.run()
    assert sorted(map(int, stream.bodies)) == list(range(500))
    explained = query._jsq.explainInternal(True)
    shown = f"{plan} {explained} {query.recentProgress}"
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert "rocketmq" in shown
    assert KEYS["secretKey"] not in shown
    assert not any(KEYS["secretKey"].encode() in data for data in written)
    assert gate.signed[RequestCode.PULL_MESSAGE]
    assert not gate.unsigned


def test_rows_are_written_with_keys(
    spark: SparkSession, live: Live, gate: Gate, topic: str
) -> None:
    where = {"namesrv": gate.addr, "topic": topic, **SECURITY}
    frame = spark.range(300).selectExpr("cast(id as string) AS body")
    frame.write.format("rocketmq").mode("append").options(**where).save()
    read = spark.read.format("rocketmq").options(namesrv=live.namesrv, topic=topic).load()
    assert sorted(int(row.body) for row in read.collect()) == list(range(300))
    assert not gate.unsigned


def test_wrong_keys_are_said_at_once_and_half_a_pair_in_load(
    spark: SparkSession, gate: Gate, topic: str
) -> None:
    where = {"namesrv": gate.addr, "topic": topic, **SECURITY, **WRONG, "retryForMs": "300000"}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("rocketmq").options(**where).load().count()
    assert "AccessDenied" in said(refused)
    sink = spark.createDataFrame([("x",)], "body string").write.format("rocketmq").mode("append")
    with pytest.raises(PySparkException) as unsent:
        sink.options(**where).save()
    assert "answered code 16: the gate knows no such user; where brokers ask" in said(unsent)
    with pytest.raises(PySparkException) as half:
        spark.read.format("rocketmq").options(**{**where, "secretKey": ""}).load()
    assert "the option accessKey is given without secretKey" in said(half)
    texts_of_errors = said(refused) + said(unsent) + said(half)
    assert not any(keys["secretKey"] in texts_of_errors for keys in (KEYS, WRONG))


def test_handlers_run_with_the_keys_of_the_read(
    spark: SparkSession, live: Live, gate: Gate, topic: str, tmp_path: Path
) -> None:
    live.send(topic, 0, texts(20))
    done = tmp_path / "done.txt"

    def handler(messages: list[MessageExt]) -> None:
        with done.open("a") as lines:
            lines.writelines(f"{one.body.decode()}\n" for one in messages)

    query = listen(
        spark,
        f"secured-{topic}",
        topic,
        "*",
        handler,
        namesrv=gate.addr,
        consume_from="first",
        source=SECURITY,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(60)
    assert sorted(map(int, done.read_text().split())) == list(range(20))
    assert not gate.unsigned
