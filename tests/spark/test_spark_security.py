"""Keys and TLS with Spark itself, at a guarded broker and name server that take TLS alone."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from cometmq import Admin
from cometmq.spark import listen
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.testing.cluster import LocalCluster
from spark.streams import Stream, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cometmq import MessageExt

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
PEM = str(Path(__file__).parents[1] / "client" / "session" / "localhost.pem")
ROOT = {"accessKey": "root", "secretKey": "sk-of-the-super-user"}
INNER = {"accessKey": "inner", "secretKey": "sk-of-the-broker"}
KEYS = {"accessKey": "spark-user", "secretKey": "sk-that-nobody-may-see"}
WRONG = {**KEYS, "secretKey": "sk-of-somebody-else"}
TLS = {"tls": "true", "tlsCaFile": PEM}
TOPIC, HANDLERS, COUNT = "Guarded", "guarded_handlers", 300
GUARD = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "tls.server.mode": "enforcing",
    "tls.server.certPath": PEM,
    "tls.client.trustCertPath": PEM,
}
RIGHTS = {
    f"Topic:{TOPIC}": ("Pub", "Sub"),
    "Group:cometmq_spark*": ("Sub",),
    f"Group:{HANDLERS}": ("Sub",),
    "Cluster:*": ("List",),
}
"""What docs/operate/access.md says that a user of Spark needs, and no more."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    first = {"username": ROOT["accessKey"], "password": ROOT["secretKey"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMETMQ_INIT_AUTHENTICATION_USER", json.dumps(first))
        patch.setenv("COMETMQ_INNER_CLIENT_AUTHENTICATION_CREDENTIALS", json.dumps(INNER))
        with LocalCluster(tmp_path_factory.mktemp("guarded"), **GUARD) as cluster:
            with Admin(
                namesrv=cluster.namesrv,
                access_key=ROOT["accessKey"],
                secret_key=ROOT["secretKey"],
                tls=ssl.create_default_context(cafile=PEM),
            ) as admin:
                admin.create_topic(TOPIC, queues=2)
                admin.create_user(KEYS["accessKey"], KEYS["secretKey"])
                for resource, actions in RIGHTS.items():
                    admin.set_policy(KEYS["accessKey"], resource, actions)
            yield cluster


@pytest.fixture
def where(guarded: LocalCluster) -> dict[str, str]:
    return {"namesrv": guarded.namesrv, "topic": TOPIC, **TLS, **KEYS}


def numbers(rows: list[str]) -> list[int]:
    return sorted(map(int, rows))


@pytest.mark.timeout(300)
def test_a_user_with_these_rights_writes_reads_handles_and_archives(
    spark: SparkSession, where: dict[str, str], tmp_path: Path
) -> None:
    frame = spark.range(COUNT).selectExpr("cast(id as string) AS body", "'k' AS sharding_key")
    frame.write.format("rocketmq").mode("append").options(**where).save()
    table = spark.read.format("rocketmq").options(**where).load()
    assert numbers([row.body.decode() for row in table.collect()]) == list(range(COUNT))
    plan = table._jdf.queryExecution().toString()  # what `explain("extended")` prints

    at = {**where, "startingOffsets": "earliest"}
    at |= {"group": "cometmq_spark_rows", "commitOffsets": "true"}
    stream = Stream(spark, at, tmp_path / "stream")
    query = stream.run()
    assert numbers(stream.bodies) == list(range(COUNT))
    shown = f"{plan} {query._jsq.explainInternal(True)} {query.recentProgress}"

    done = tmp_path / "done.txt"

    def handler(messages: list[MessageExt]) -> None:
        with done.open("a") as lines:
            lines.writelines(f"{one.body.decode()}\n" for one in messages)
        if messages[0].body == b"7" and not messages[0].reconsume_times:
            raise ValueError("once more")

    def handle() -> None:
        query = listen(
            spark,
            HANDLERS,
            TOPIC,
            "*",
            handler,
            namesrv=where["namesrv"],
            consume_from="first",
            source={**TLS, **KEYS},
            checkpoint=str(tmp_path / "handled"),
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(60)

    handle()
    assert numbers(done.read_text().split()) == list(range(COUNT))

    options = {**TLS, **KEYS}
    place, names = tmp_path / "table", where["namesrv"]
    assert archive(spark, TOPIC, place, namesrv=names, options=options).rows == COUNT
    assert verify_archive(spark, place, namesrv=names, options=options, bodies=True).is_exact

    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert "rocketmq" in shown
    assert KEYS["secretKey"] not in shown
    assert not any(KEYS["secretKey"].encode() in data for data in written)


def test_wrong_keys_are_said_at_once_and_half_a_pair_in_load(
    spark: SparkSession, where: dict[str, str]
) -> None:
    given = {**where, **WRONG, "retryForMs": "300000"}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("rocketmq").options(**given).load().count()
    assert "AccessDenied" in said(refused)
    sink = spark.createDataFrame([("x",)], "body string").write.format("rocketmq").mode("append")
    with pytest.raises(PySparkException) as unsent:
        sink.options(**given).save()
    assert "answered code 16" in said(unsent)
    assert "where brokers ask" in said(unsent)
    with pytest.raises(PySparkException) as half:
        spark.read.format("rocketmq").options(**{**given, "secretKey": ""}).load()
    assert "the option accessKey is given without secretKey" in said(half)
    texts_of_errors = said(refused) + said(unsent) + said(half)
    assert not any(keys["secretKey"] in texts_of_errors for keys in (KEYS, WRONG))


def test_a_server_of_an_unknown_authority_is_refused(
    spark: SparkSession, where: dict[str, str]
) -> None:
    given = {name: text for name, text in where.items() if name != "tlsCaFile"}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("rocketmq").options(**given).load().count()
    assert f"the certificate of {where['namesrv']} is refused" in said(refused)
