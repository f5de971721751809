"""users and acls against a guarded name server and broker, as processes; keys of other commands."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.cli.main import run
from cometmq.errors import BrokerError, CometError
from cometmq.testing.cluster import ClusterError, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT, SECRET = "root", "root-secret-of-many"
KEYS = {"COMETMQ_ACCESS_KEY": ROOT, "COMETMQ_SECRET_KEY": SECRET}
USER_SECRET = "user-secret-of-many"
FIRST = json.dumps({"username": ROOT, "password": SECRET})
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret-of-many"})
GUARD = {"authentication_enabled": True, "authorization_enabled": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMETMQ_INIT_AUTHENTICATION_USER", FIRST)
        patch.setenv("COMETMQ_INNER_CLIENT_AUTHENTICATION_CREDENTIALS", INNER)
        with LocalCluster(tmp_path_factory.mktemp("store"), **GUARD) as running:
            yield running


class Shell:
    """Runs commands in this process, with the super user's keys unless others are given."""

    def __init__(
        self, cluster: LocalCluster, patch: pytest.MonkeyPatch, out: pytest.CaptureFixture[str]
    ) -> None:
        self._cluster, self._patch, self._out = cluster, patch, out

    def fails(self, *words: str, stdin: str = "", **keys: str) -> str:
        """What a command that fails says."""
        code, _out, said = self._run(words, stdin, keys)
        assert code == 1, said
        return said

    def __call__(self, *words: str, stdin: str = "") -> str:
        """What a command prints."""
        code, out, said = self._run(words, stdin, KEYS)
        assert code == 0, said
        return out

    def _run(
        self, words: tuple[str, ...], stdin: str, keys: dict[str, str]
    ) -> tuple[int, str, str]:
        with self._patch.context() as patch:
            for name, text in keys.items():
                patch.setenv(name, text)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            code = run([*words, "-n", self._cluster.namesrv])
        found = self._out.readouterr()
        return code, found.out, found.err


@pytest.fixture
def shell(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(cluster, monkeypatch, capsys)


def test_users_and_policies_are_kept_at_the_name_server_and_the_broker(
    cluster: LocalCluster, shell: Shell
) -> None:
    both = f"{cluster.namesrv}, {cluster.broker}\n"
    made = shell("users", "create", "ann", "--password-file", "-", stdin=USER_SECRET + "\n")
    assert made == f"ann: created at {both}"
    lines = shell("users", "list", "a").splitlines()
    assert lines[0].split() == ["server", "user", "type", "status"]
    assert [line.split()[1:] for line in lines[1:]] == [["ann", "Normal", "enable"]] * 2
    with Admin(namesrv=cluster.namesrv, access_key=ROOT, secret_key=SECRET) as admin:
        admin.create_topic("orders")
    keys = {"access_key": "ann", "secret_key": USER_SECRET}
    with (
        Producer("p", namesrv=cluster.namesrv, **keys) as producer,
        pytest.raises(CometError, match="User:ann has no permission to access Topic:orders"),
    ):
        producer.send(Message("orders", b"one"))
    assert shell("acls", "allow", "ann", "Topic:ord*", "Pub,get") == (
        f"ann, Topic:ord*: allowed at {both}"
    )
    with Producer("p", namesrv=cluster.namesrv, **keys) as producer:
        producer.send(Message("orders", b"one"))
    shell("acls", "deny", "ann", "Group:*", "All", "--from", "10.0.0.0/8")
    rows = json.loads(shell("acls", "list", "--user", "ann", "--json"))
    assert [(row["resource"], row["decision"], row["actions"], row["from"]) for row in rows] == [
        ("Topic:ord*", "Allow", "Pub,Get", ""),
        ("Group:*", "Deny", "All", "10.0.0.0/8"),
    ] * 2
    shell("acls", "delete", "ann", "Group:*")
    shell("users", "update", "ann", "--disable")
    with (
        Producer("p", namesrv=cluster.namesrv, **keys) as producer,
        pytest.raises(CometError, match="User:ann is disabled"),
    ):
        producer.send(Message("orders", b"one"))
    assert shell("users", "delete", "ann") == f"ann: deleted at {both}"


def test_commands_take_keys_from_the_environment_and_say_where_they_are_missing(
    shell: Shell,
) -> None:
    assert "username cannot be null" in shell.fails("users", "list")
    wrong = {**KEYS, "COMETMQ_SECRET_KEY": "x"}
    assert "check signature failed" in shell.fails("users", "list", **wrong)
    assert ROOT in shell("users", "list")
    assert "nothing is wrong" in shell("doctor")
    shell.fails("doctor")


def test_the_broker_registers_with_its_inner_credentials(cluster: LocalCluster) -> None:
    with Admin(namesrv=cluster.namesrv, access_key=ROOT, secret_key=SECRET) as admin:
        known = admin.clusters().broker_addr_table
    assert [each.broker_addrs for each in known.values()] == [{0: cluster.broker}]


def test_no_secret_is_in_a_process_list_or_a_log(cluster: LocalCluster) -> None:
    assert cluster._broker is not None
    seen = [cluster._broker.stderr]
    if sys.platform == "linux":
        seen.append(Path(f"/proc/{cluster._broker.pid}/cmdline").read_text())
    for secret in (SECRET, USER_SECRET, "inner-secret-of-many"):
        assert not any(secret in text for text in seen)


def test_a_secret_as_an_argument_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = f"initAuthenticationUser={FIRST}"
    assert run(["standalone", "--store", str(tmp_path), "--set", secret]) == 1
    said = capsys.readouterr().err
    assert "every user of this machine can read arguments" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "set innerClientAuthenticationCredentials too"),
        ({"INNER_CLIENT_AUTHENTICATION_CREDENTIALS": "{}"}, "(not shown)"),
    ],
)
def test_a_guarded_start_without_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], problem: str
) -> None:
    for name in ("INIT_AUTHENTICATION_USER", "INNER_CLIENT_AUTHENTICATION_CREDENTIALS"):
        monkeypatch.delenv(f"COMETMQ_{name}", raising=False)
    for name, text in settings.items():
        monkeypatch.setenv(f"COMETMQ_{name}", text)
    with pytest.raises(ClusterError) as caught:
        LocalCluster(tmp_path, **GUARD).start()
    assert problem in str(caught.value)


def test_an_open_cluster_has_no_users(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster, Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(CometError, match="no server has access control"):
            admin.users()
        with pytest.raises(BrokerError, match="access control is off"):
            admin.users(servers=[cluster.broker])
