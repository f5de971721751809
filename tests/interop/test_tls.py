"""TLS with Apache RocketMQ: its Java client at our servers, and our broker at its name server."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster, ServerProcess
from interop.apache import ApacheCluster, until
from net.certificates import certificates

if TYPE_CHECKING:
    from pathlib import Path

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
COUNT = 20
TRUSTING = {
    "tls.enable": "true",
    "tls.test.mode.enable": "false",
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": str(certificates().ours.cert),
}
SHOWING = {
    **TRUSTING,
    "tls.client.certPath": str(certificates().client[0]),
    "tls.client.keyPath": str(certificates().client[1]),
}


def settings(mode: str, **more: str) -> dict[str, Any]:
    cert, key = map(str, certificates().server)
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        **more,
    }


def asking_for_certificates() -> dict[str, Any]:
    """Settings of a server that asks, and whose broker has one itself."""
    trusted = str(certificates().ours.cert)
    return settings("enforcing") | {
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": trusted,
        "tls.client.trustCertPath": trusted,
        "tls.client.certPath": SHOWING["tls.client.certPath"],
        "tls.client.keyPath": SHOWING["tls.client.keyPath"],
    }


def said(
    host: JavaHost, properties: dict[str, str], *arguments: object, timeout_s: float = 150
) -> list[str]:
    """What the program prints in a JVM of its own with these properties, until its time is over."""
    java, *others = host.command("Roundtrip")
    given = [f"-D{key}={value}" for key, value in properties.items()]
    with subprocess.Popen(
        [java, *given, *others, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
    return [line for line in printed.splitlines() if line.startswith(("SENT", "GOT"))]


@pytest.mark.parametrize("asks", [False, True])
def test_java_sends_and_receives_where_tls_is_enforced(
    java: JavaHost, tmp_path: Path, asks: bool
) -> None:
    given = asking_for_certificates() if asks else settings("enforcing")
    with LocalCluster(tmp_path, **given) as cluster:
        shown = SHOWING if asks else TRUSTING
        sent = said(java, shown, "send", cluster.namesrv, "ByTls", "Sender", COUNT)
        assert [line.startswith("SENT SEND_OK") for line in sent] == [True] * COUNT
        got = said(java, shown, "consume", cluster.namesrv, "ByTls", "Reader", COUNT)
        assert len(got) == COUNT
        less = TRUSTING if asks else {}  # it tries for minutes
        assert said(java, less, "send", cluster.namesrv, "X", "Y", 1, timeout_s=20) == []


def test_java_with_tls_and_clients_without_it_share_a_port(java: JavaHost, tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, **settings("permissive")) as cluster,
        Producer("Plain", namesrv=cluster.namesrv) as producer,
    ):
        for number in range(COUNT):
            producer.send(Message("Both", b"%d" % number))
        assert len(said(java, TRUSTING, "consume", cluster.namesrv, "Both", "R", COUNT)) == COUNT
        assert len(said(java, {}, "consume", cluster.namesrv, "Both", "S", COUNT)) == COUNT
        producer.send(Message("Both", b"after"))


def test_our_broker_registers_with_an_apache_name_server_that_enforces_tls(
    apache_jars: Path, tmp_path: Path
) -> None:
    enforcing = ["-Dtls.server.mode=enforcing", "-Dtls.test.mode.enable=true"]
    apache = ApacheCluster(apache_jars, tmp_path / "apache", broker=False, java=enforcing)
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        broker = ServerProcess([
            "broker", "-n", apache.namesrv, "-p0", f"--store={tmp_path}/store",
            "--set=tls.enable=true", "--set=tls.client.authServer=false",
        ])  # fmt: skip
        try:
            with Admin(namesrv=apache.namesrv, tls=anybody) as admin:
                until(lambda: bool(admin.clusters().broker_addr_table), 30)
        finally:
            broker.stop()
    finally:
        apache.stop()
