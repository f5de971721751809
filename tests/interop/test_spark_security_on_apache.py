"""Source, sink, handlers and tables of Spark at an Apache broker with access control and TLS."""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from cometmq import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.spark import listen
from cometmq.spark.session import spark_session
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.spark.tables.backlog import backlog
from cometmq.spark.tables.order import order_of_topics
from cometmq.wire.headers.base import Header
from cometmq.wire.request_signature import Credentials
from interop.apache import ApacheCluster
from spark.streams import said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cometmq import MessageExt

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
PEM = Path(__file__).parents[1] / "client" / "session" / "localhost.pem"
ROOT = Credentials("root", "root-of-eight")
SECRET = "secret-that-nobody-may-see"
KEYS = {"accessKey": "spark-user", "secretKey": SECRET}
TLS = {"tls": "true", "tlsCaFile": str(PEM)}
TOPIC, GROUP, HANDLERS, COUNT = "SecuredBySpark", "secured_group", "secured_handlers", 2000
WAIT_S = 120
CREATE_USER, CREATE_ACL = 3001, 3006


@dataclass(slots=True, kw_only=True)
class OfUser(Header):
    """The header of a request to create a user."""

    username: str


@dataclass(slots=True, kw_only=True)
class OfSubject(Header):
    """The header of a request to create rights."""

    subject: str


def entry(resource: str, *actions: str) -> dict[str, object]:
    return {"resource": resource, "actions": actions, "sourceIps": [], "decision": "Allow"}


RIGHTS = [
    entry(f"Topic:{TOPIC}", "Pub", "Sub", "Get"),
    entry("Group:*", "Sub"),
    entry(f"Group:{HANDLERS}", "Sub", "Get"),
]
"""What the guide says that a user needs."""


def give_rights(cluster: ApacheCluster, user: str, secret: str, rights: object) -> None:
    tls = ssl.create_default_context(cafile=PEM)
    made = {"username": user, "password": secret, "userType": "Normal", "userStatus": "enable"}
    rules = {
        "subject": f"User:{user}",
        "policies": [{"policyType": "Custom", "entries": rights}],
    }
    with BlockingChannel(cluster.broker, credentials=ROOT, tls=tls) as channel:
        for code, header, body in (
            (CREATE_USER, OfUser(username=user), made),
            (CREATE_ACL, OfSubject(subject=f"User:{user}"), rules),
        ):
            answer = channel.call(code, header, json.dumps(body).encode())
            assert answer.code == 0, answer


@pytest.fixture(scope="module")
def secured(apache_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A broker that wants keys with rights, and TLS beside plain connections."""
    provider = "org.apache.rocketmq.auth"
    local = f"{provider}.authentication.provider.LocalAuthenticationMetadataProvider"
    cluster = ApacheCluster(
        apache_jars,
        tmp_path_factory.mktemp("secured"),
        java=[
            "-Dtls.test.mode.enable=false",
            f"-Dtls.server.certPath={PEM}",
            f"-Dtls.server.keyPath={PEM}",
        ],
        authenticationEnabled=True,
        authenticationProvider=f"{provider}.authentication.provider.DefaultAuthenticationProvider",
        authenticationMetadataProvider=local,
        authorizationEnabled=True,
        authorizationProvider=f"{provider}.authorization.provider.DefaultAuthorizationProvider",
        authorizationMetadataProvider=(
            f"{provider}.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
        initAuthenticationUser=json.dumps({"username": ROOT[0], "password": ROOT[1]}),
        innerClientAuthenticationCredentials=json.dumps(
            {"accessKey": ROOT[0], "secretKey": ROOT[1]}
        ),
    )
    try:
        tls = ssl.create_default_context(cafile=PEM)
        with Admin(
            namesrv=cluster.namesrv, access_key=ROOT[0], secret_key=ROOT[1], tls=tls
        ) as admin:
            admin.create_topic(TOPIC, queues=2)
        give_rights(cluster, KEYS["accessKey"], SECRET, RIGHTS)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    events = tmp_path_factory.mktemp("events")
    session = spark_session(
        "interop",
        cores=2,
        heap_mb=512,
        conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
        },
    )
    yield session
    session.stop()
    logs = [file.read_text() for file in events.rglob("*") if file.is_file()]
    assert any(TOPIC in log for log in logs), "what was read is in the event log"
    assert not any(SECRET in log for log in logs), "its keys are not"


@pytest.fixture
def where(secured: ApacheCluster) -> dict[str, str]:
    return {"namesrv": secured.namesrv, "topic": TOPIC, **TLS, **KEYS}


def test_rows_are_written_and_read_by_a_user_with_these_rights(
    where: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(COUNT).selectExpr(
        "cast(id as string) AS body", "concat('k', id % 7) AS sharding_key"
    )
    frame.write.format("rocketmq").mode("append").options(**where).save()
    table = spark.read.format("rocketmq").options(**where).load()
    assert sorted(int(row.body) for row in table.collect()) == list(range(COUNT))
    plan = table._jdf.queryExecution().toString()  # what `explain("extended")` prints
    assert "rocketmq" in plan
    assert SECRET not in plan
    options = {**where, "startingOffsets": "earliest", "group": GROUP, "commitOffsets": "true"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == COUNT
    files = [one for one in (tmp_path / "checkpoint").rglob("*") if one.is_file()]
    assert files
    assert not any(SECRET.encode() in one.read_bytes() for one in files)


def test_handlers_send_back_and_tables_are_kept(
    where: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    done = tmp_path / "done.txt"

    def handler(messages: list[MessageExt]) -> None:
        with done.open("a") as lines:
            for one in messages:
                lines.write(f"{one.body.decode()} {one.reconsume_times}\n")
                if one.body == b"7" and not one.reconsume_times:
                    raise ValueError("once more")

    query = listen(
        spark,
        HANDLERS,
        TOPIC,
        "*",
        handler,
        namesrv=where["namesrv"],
        consume_from="first",
        source={**TLS, **KEYS},
        checkpoint=str(tmp_path / "checkpoint"),
    )
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and "7 1" not in _lines(done):
        assert query.isActive, query.exception()
        query.awaitTermination(1)
    query.stop()
    assert {"7 0", "7 1"} <= set(_lines(done))
    assert {int(line.split()[0]) for line in _lines(done)} == set(range(COUNT))
    options = {**TLS, **KEYS}
    at = {"namesrv": where["namesrv"], "options": options}
    assert archive(spark, TOPIC, tmp_path / "table", **at).rows == COUNT  # type: ignore[arg-type]
    assert verify_archive(spark, tmp_path / "table", bodies=True, **at).is_exact  # type: ignore[arg-type]
    assert order_of_topics(spark, TOPIC, **at).is_in_order  # type: ignore[arg-type]
    tables = [one for one in (tmp_path / "table").rglob("*") if one.is_file()]
    assert not any(SECRET.encode() in one.read_bytes() for one in tables)


def test_the_backlog_of_a_group_is_shown(where: dict[str, str]) -> None:
    options = {**TLS, "accessKey": ROOT[0], "secretKey": ROOT[1]}
    rows = backlog(GROUP, namesrv=where["namesrv"], over_s=0.5, options=options)
    assert [row.topic for row in rows] == [TOPIC]


@pytest.mark.parametrize(
    "keys", [{"accessKey": "spark-user", "secretKey": "another-secret"}, {}], ids=["wrong", "none"]
)
def test_keys_that_the_broker_refuses_end_reads_and_writes_at_once(
    where: dict[str, str], spark: SparkSession, keys: dict[str, str]
) -> None:
    given = {**{name: text for name, text in where.items() if name not in KEYS}, **keys}
    given["retryForMs"] = "300000"
    with pytest.raises(PySparkException) as read:
        spark.read.format("rocketmq").options(**given).load().count()
    assert "AccessDenied" in said(read)
    assert "answered code 16" in said(read)
    sink = spark.createDataFrame([("x",)], "body string").write.format("rocketmq").mode("append")
    with pytest.raises(PySparkException) as written:
        sink.options(**given).save()
    assert "was not sent to the topic SecuredBySpark" in said(written)
    assert "answered code 16" in said(written)
    assert "another-secret" not in said(read) + said(written)


def test_a_user_without_the_right_is_refused(
    secured: ApacheCluster, where: dict[str, str], spark: SparkSession
) -> None:
    give_rights(secured, "other", "other-secret", [entry("Topic:Another", "Sub", "Get")])
    given = {**where, "accessKey": "other", "secretKey": "other-secret"}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("rocketmq").options(**given).load().count()
    assert "AccessDenied" in said(refused)


def test_a_server_of_an_unknown_authority_is_refused(
    where: dict[str, str], spark: SparkSession
) -> None:
    given = {name: text for name, text in where.items() if name != "tlsCaFile"}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("rocketmq").options(**given).load().count()
    assert f"the certificate of {where['namesrv']} is refused" in said(refused)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
