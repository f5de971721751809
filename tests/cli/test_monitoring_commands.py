"""Metrics and health of real processes, as Prometheus and scripts ask for them."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.in_process import cometmq
from cli.shell import cometmq as cometmq_process
from cli.shell import sentence, serving
from cometmq import Message, Producer
from net.certificates import authority

if TYPE_CHECKING:
    from pathlib import Path

FREE = ("--namesrv-port=0", "--broker-port=0", "--set=metricsPromExporterPort=0")
PROM = (*FREE, "--set=metricsExporterType=PROM", "--set=metricsLabel=zone:eu")
SECRET = "open-sesame-4711"


def get(url: str, path: str, trust: Path | None = None) -> tuple[int, str, str]:
    """The status, the content type and the body of an answer."""
    where = urlsplit(url)
    assert where.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
    if where.scheme == "https":
        context = ssl.create_default_context(cafile=trust)
        connection = http.client.HTTPSConnection(
            where.hostname, where.port, timeout=10, context=context
        )
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    connection.close()
    return found


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_process_shows_its_metrics_and_health_and_no_secret(tmp_path: Path) -> None:
    conf = tmp_path / "b.conf"
    users = json.dumps({"username": "root", "password": SECRET})
    inner = json.dumps({"accessKey": "root", "secretKey": SECRET})
    conf.write_text(
        "authenticationEnabled=true\n"
        f"initAuthenticationUser={users}\ninnerClientAuthenticationCredentials={inner}\n"
    )
    store = ("--store", str(tmp_path / "s"))
    with serving(tmp_path, "standalone", "-c", str(conf), *store, *PROM) as server:
        url = server.facts["monitoring"]
        with Producer(
            "PG", namesrv=server.facts["namesrv"], access_key="root", secret_key=SECRET
        ) as producer:
            for number in range(3):
                producer.send(Message("T", b"%d" % number))
            status, kind, text = get(url, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        assert SECRET not in text
        found = samples(text)
        node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        sent = {"topic": "T", "message_type": "normal", "is_system": "false"}
        assert ({**node, **sent, "zone": "eu"}, 3.0) in found["rocketmq_messages_in_total"]
        (producers,) = found["rocketmq_producer_connections"]
        assert (producers[0]["language"], producers[1]) == ("python", 1)
        assert {labels["node_type"] for labels, _ in found["cometmq_ready"]} == {
            "broker",
            "namesrv",
        }
        assert all(value == 1 for _, value in found["cometmq_ready"])
        ((labels, _),) = found["cometmq_registered_broker"]
        assert (labels["broker_name"], labels["broker_id"]) == ("broker-a", "0")
        assert get(url, "/live")[0] == 200
        assert json.loads(get(url, "/ready")[2]) == {"ready": True, "problems": []}
        assert cometmq("health", "--url", url).stdout == "ready\n"
        assert cometmq("health", "--url", url, "--live").stdout == "live\n"
        shown = cometmq(
            "brokers", "config", "get", "broker-a", "-n", server.facts["namesrv"], "--json",
            COMETMQ_ACCESS_KEY="root", COMETMQ_SECRET_KEY=SECRET,
        )  # fmt: skip
        assert '"metricsExporterType": "PROM"' in shown.stdout
        assert server.end(signal.SIGTERM) == (0, "")
    asked = cometmq("health", "--url", url)
    assert (asked.code, asked.out) == (1, "")
    assert "does not say whether it is ready: Connection refused; a role answers with " in asked.err


def test_a_role_that_is_not_ready_says_why_and_health_alone_needs_no_library(
    tmp_path: Path,
) -> None:
    health = ("--set=healthEnable=true", "--set=metricsPromExporterPort=0")
    store = ("--store", str(tmp_path / "s"))
    with serving(tmp_path, "broker", "-p0", *store, "-n", "127.0.0.1:1", *health) as server:
        url = server.facts["monitoring"]
        status, kind, body = get(url, "/ready")
        assert (status, kind) == (503, "application/json")
        answer: dict[str, Any] = json.loads(body)
        assert answer["ready"] is False
        assert "no name server" in answer["problems"][0]
        assert get(url, "/live")[0] == 200
        assert get(url, "/metrics")[0] == 404
        done = cometmq("health", "--url", url)
        assert (done.returncode, done.stdout.splitlines()[0]) == (1, "not ready")
        asked = cometmq("health", "--url", url, "--json")
        assert (asked.returncode, json.loads(asked.stdout)) == (1, answer)
        taken = f"--set=metricsPromExporterPort={urlsplit(url).port}"
        second = cometmq_process("namesrv", "-p0", "--set=healthEnable=true", taken)
        assert "port is in use (metricsPromExporterPort)" in sentence(second)


def test_a_role_that_speaks_tls_alone_is_asked_by_tls_alone(tmp_path: Path) -> None:
    issuer = authority(tmp_path, "monitoring")
    cert, key = issuer.issue("namesrv")
    tls = (
        "--set=tls.server.mode=enforcing",
        f"--set=tls.server.certPath={cert}",
        f"--set=tls.server.keyPath={key}",
    )
    health = ("--set=healthEnable=true", "--set=metricsPromExporterPort=0")
    with serving(tmp_path, "namesrv", "-p0", *health, *tls) as server:
        url = server.facts["monitoring"]
        assert url.startswith("https://127.0.0.1:")
        assert get(url, "/ready", issuer.cert)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            get(url.replace("https", "http"), "/ready")
        assert cometmq("health", "--url", url, "--trust", str(issuer.cert)).returncode == 0
        assert "CERTIFICATE_VERIFY_FAILED" in cometmq("health", "--url", url).err
