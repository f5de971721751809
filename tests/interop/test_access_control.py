"""mqadmin and unmodified clients at servers that guard themselves; users that come from Apache."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.jvm import JavaHost

Run = Callable[..., list[str]]
MqAdmin = Callable[..., str]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROOT, SECRET = "root", "root-of-eight"
USER, USER_SECRET = "ann", "ann-of-eight"
KEYS = {"access_key": ROOT, "secret_key": SECRET}
FIRST = json.dumps({"username": ROOT, "password": SECRET})
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-of-eight"})
COUNT = 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A CometMQ broker and name server that ask for signatures and rights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMETMQ_INIT_AUTHENTICATION_USER", FIRST)
        patch.setenv("COMETMQ_INNER_CLIENT_AUTHENTICATION_CREDENTIALS", INNER)
        store = tmp_path_factory.mktemp("store")
        with LocalCluster(
            store, authentication_enabled=True, authorization_enabled=True
        ) as running:
            yield running


@pytest.fixture(scope="module")
def mqadmin(java: JavaHost, guarded: LocalCluster) -> MqAdmin:
    """Run one command of mqadmin as the super user, or as the user of `keys`."""

    def run(line: str, keys: tuple[str, str] = (ROOT, SECRET)) -> str:
        words = line.replace("NAMES", guarded.namesrv).replace("BROKER", guarded.broker).split()
        return "\n".join(java.run("MqAdmin", *keys, *words))

    return run


def rows(printed: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    lines = printed.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("#"))
    cells = [line.split() for line in lines[at + 1 :]]
    return [row for row in cells if len(row) >= 4 and "success." not in row]


def test_mqadmin_makes_changes_lists_and_deletes_users(mqadmin: MqAdmin) -> None:
    at = "-n NAMES -b BROKER"
    assert "create user to" in mqadmin(f"createUser {at} -u bob -p bobs-secret")
    assert rows(mqadmin(f"getUser {at} -u bob")) == [["bob", "bobs-secret", "Normal", "enable"]]
    assert "is existed" in mqadmin(f"createUser {at} -u bob -p another")
    assert "success" in mqadmin(f"updateUser {at} -u bob -p other-secret")
    assert "success" in mqadmin(f"updateUser {at} -u bob -s disable")
    assert "success" in mqadmin(f"updateUser {at} -u bob -t Super")
    assert rows(mqadmin(f"listUser {at} -f bo")) == [["bob", "other-secret", "Super", "disable"]]
    assert "success" in mqadmin(f"deleteUser {at} -u bob")
    names = [row[0] for row in rows(mqadmin("listUser -n NAMES -c DefaultCluster"))]
    assert names == ["inner", "root"]


def test_mqadmin_makes_changes_lists_and_deletes_policies(mqadmin: MqAdmin) -> None:
    at, who = "-n NAMES -b BROKER", "-s User:carl"
    assert "success" in mqadmin(f"createUser {at} -u carl -p carls-secret")
    made = mqadmin(
        f"createAcl {at} {who} -r Topic:a*,Group:g -a Pub,Sub -i 10.0.0.0/8,127.0.0.1 -d Allow"
    )
    assert "create acl to" in made, made
    assert "success" in mqadmin(f"updateAcl {at} {who} -r Topic:a* -a All -d Deny")
    found = rows(mqadmin(f"getAcl {at} {who}"))
    assert [[row[0], row[1], row[2], row[-1]] for row in found] == [
        ["User:carl", "Custom", "Topic:a*", "Deny"],
        ["User:carl", "Custom", "Group:g", "Allow"],
    ]
    assert "10.0.0.0/8" in " ".join(found[1])
    assert len(rows(mqadmin(f"listAcl {at} -s carl"))) == 2
    assert "invalid" in mqadmin(f"createAcl {at} {who} -r Topic:b -a Pub -i 10.0.0 -d Allow")
    assert "success" in mqadmin(f"deleteAcl {at} {who} -r Topic:a*")
    assert len(rows(mqadmin(f"getAcl {at} {who}"))) == 1
    assert "success" in mqadmin(f"deleteAcl {at} {who}")
    assert "success" in mqadmin(f"deleteUser {at} -u carl")


@pytest.mark.parametrize(
    ("keys", "remark"),
    [
        (("-", "-"), "username cannot be null"),
        ((ROOT, "wrong-secret"), "check signature failed"),
        (("nobody", SECRET), "User:nobody is not found"),
    ],
)
def test_mqadmin_is_refused_without_the_right_keys(
    mqadmin: MqAdmin, keys: tuple[str, str], remark: str
) -> None:
    for line in ("listUser -n NAMES -b BROKER", "clusterList -n NAMES"):
        said = mqadmin(line, keys)
        assert "CODE: 16" in said, said
        assert remark in said


def test_apache_refuses_with_the_same_code_and_remark(
    apache_jars: Path, tmp_path: Path, java: JavaHost, guarded: LocalCluster
) -> None:
    auth = "org.apache.rocketmq.auth"
    provider = f"{auth}.authentication.provider"
    rights = f"{auth}.authorization.provider"
    apache = ApacheCluster(
        apache_jars,
        tmp_path,
        authenticationEnabled=True,
        authenticationProvider=f"{provider}.DefaultAuthenticationProvider",
        authenticationMetadataProvider=f"{provider}.LocalAuthenticationMetadataProvider",
        authorizationEnabled=True,
        authorizationProvider=f"{rights}.DefaultAuthorizationProvider",
        authorizationMetadataProvider=f"{rights}.LocalAuthorizationMetadataProvider",
        initAuthenticationUser=FIRST,
        innerClientAuthenticationCredentials=INNER,
    )
    try:

        def both(line: str, *keys: str) -> list[str]:
            """The code and words of the refusal, or what was printed, by Apache and by us."""
            said = []
            for broker, names in (
                (apache.broker, apache.namesrv),
                (guarded.broker, guarded.namesrv),
            ):
                words = line.replace("BROKER", broker).replace("NAMES", names).split()
                lines = java.run("MqAdmin", *(keys or (ROOT, SECRET)), *words)
                refusals = [one for one in lines if "CODE:" in one] or lines
                said.append(
                    refusals[0].partition("CODE:")[2].replace(broker, "").partition("See")[0]
                )
            return [" ".join(one.partition("For more")[0].split()) for one in said]

        for keys in (("-", "-"), (ROOT, "wrong"), ("nobody", SECRET)):
            theirs, ours = both("listUser -n NAMES -b BROKER", *keys)
            assert theirs == ours, keys
            assert theirs.startswith("16 ")
        for line in (
            "createUser -n NAMES -b BROKER -u root -p x",
            "updateUser -n NAMES -b BROKER -u nobody -p x",
            "createAcl -n NAMES -b BROKER -s User:nobody -r Topic:T -a Pub -d Allow",
            "createAcl -n NAMES -b BROKER -s User:root -r Topic:T -a Pub -d Perhaps",
            "createAcl -n NAMES -b BROKER -s User:root -r Queue:T -a Pub -d Allow",
            "createAcl -n NAMES -b BROKER -s User:root -r Topic:T -a Any -d Allow",
            "createAcl -n NAMES -b BROKER -s User:root -r Topic:T -a Pub -i 1.2 -d Allow",
            "deleteAcl -n NAMES -b BROKER -s User:nobody",
            "deleteAcl -n NAMES -b BROKER -s User:root",
            "getAcl -n NAMES -b BROKER -s User:nobody",
        ):
            theirs, ours = both(line)
            assert theirs == ours, line

        # users and policies move from Apache's broker to ours
        move = f"-f {apache.broker} -t {guarded.broker} -n {guarded.namesrv}"
        source = f"-n {apache.namesrv} -b {apache.broker}"
        for line in (
            f"createUser {source} -u moved -p moved-of-eight",
            f"createAcl {source} -s User:moved -r Topic:Moved*,Group:m -a Pub,Sub -d Allow",
            f"copyUser {move} -u moved",
            f"copyAcl {move} -s User:moved",
        ):
            said = "\n".join(java.run("MqAdmin", ROOT, SECRET, *line.split()))
            assert "success" in said, said
        with Admin(namesrv=guarded.namesrv, **KEYS) as admin:
            (users,) = admin.users("moved", servers=[guarded.broker]).values()
            (policies,) = admin.policies("moved", servers=[guarded.broker]).values()
            assert [(user.username, user.password) for user in users] == [
                ("moved", "moved-of-eight")
            ]
            (custom,) = policies[0].policies.values()
            entries = [str(one.resource) for one in custom]
            assert entries == ["Topic:Moved*", "Group:m"]
            admin.delete_user("moved", servers=[guarded.broker])
    finally:
        apache.stop()


@pytest.fixture(scope="module")
def ann(guarded: LocalCluster) -> LocalCluster:
    """A user who may send to and read two topics."""
    with Admin(namesrv=guarded.namesrv, **KEYS) as admin:
        admin.create_user(USER, USER_SECRET)
        for topic in ("Signed", "SignedGo", "SignedNode", "SignedCpp", "SignedSpark", "Other"):
            admin.create_topic(topic)
        admin.set_policy(USER, "Topic:Signed*", ["Pub", "Sub"])
        admin.set_policy(USER, "Group:Signed*", ["Sub"])
        until(lambda: bool(admin.queues("Signed")), 10)
    return guarded


def test_java_clients_that_sign_send_and_receive(java_program: Run, ann: LocalCluster) -> None:
    keys = f"keys={USER}:{USER_SECRET}"
    sent = java_program(keys, "send", ann.namesrv, "Signed", "SignedProducer", COUNT)
    assert all(line.startswith("SENT SEND_OK") for line in sent), sent
    batch = java_program(keys, "send-batch", ann.namesrv, "Signed", "SignedProducer", COUNT)
    assert batch[-1] == f"SENT SEND_OK {COUNT}"
    got = java_program(keys, "consume", ann.namesrv, "Signed", "SignedReader", 2 * COUNT)
    assert len([line for line in got if line.startswith("GOT")]) == 2 * COUNT
    again = java_program(keys, "consume-retry", ann.namesrv, "Signed", "SignedRetry", 2 * COUNT)
    assert again[-1] == f"REFUSED {2 * COUNT}"


@pytest.mark.parametrize(
    ("keys", "topic"),
    [
        (f"keys={USER}:{USER_SECRET}", "Other"),
        (f"keys={USER}:wrong", "Signed"),
        ("keys=nobody:x", "Signed"),
    ],
)
def test_java_clients_without_the_right_are_refused(
    java_program: Run, java: JavaHost, ann: LocalCluster, keys: str, topic: str
) -> None:
    with pytest.raises(AssertionError, match=r"CODE: 16|No route info"):
        java_program(keys, "send", ann.namesrv, topic, "SignedProducer", 1)


@pytest.mark.parametrize(
    ("language", "name"), [("go", "SignedGo"), ("node", "SignedNode"), ("cpp", "SignedCpp")]
)
def test_clients_of_other_languages_that_sign_send_and_receive(
    request: pytest.FixtureRequest,
    ann: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    name: str,
) -> None:
    """Those of Go and Node.js, and the older library of Python, which is the one of C++."""
    program: Run = request.getfixturevalue(f"{language}_program")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", USER)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", USER_SECRET)
    sent = program("send", ann.namesrv, name, f"{name}Producer", COUNT)
    assert len([line for line in sent if line.startswith("SENT")]) == COUNT
    got = program("consume", ann.namesrv, name, f"{name}Reader", COUNT)
    assert len([line for line in got if line.startswith("GOT")]) == COUNT
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "wrong")
    with pytest.raises(AssertionError):
        program("send", ann.namesrv, name, f"{name}Producer", 1)


def test_spark_writes_and_reads_with_keys_and_is_refused_without(
    spark: SparkSession, ann: LocalCluster
) -> None:
    where = {"namesrv": ann.namesrv, "topic": "SignedSpark"}
    keys = {"accessKey": USER, "secretKey": USER_SECRET}
    rows = spark.createDataFrame([(f"row {n}",) for n in range(COUNT)], "body string")

    def read(**given: str) -> int:
        options = {**where, "group": "SignedSpark", **given}
        return spark.read.format("rocketmq").options(**options).load().count()

    rows.write.format("rocketmq").options(**where, **keys).mode("append").save()
    assert read(**keys) == COUNT
    for wrong in ({}, {**keys, "secretKey": "wrong"}):
        with pytest.raises(Exception, match="accessKey"):
            read(**wrong)
