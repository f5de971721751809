"""Readers, writers and handlers at brokers that want TLS and keys, without a Java machine.

`test_spark_security.py` has the same with Spark itself.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.cli.main import run as command_line
from cometmq.errors import AccessDenied, CertificateRefused, RowNotSent, SettingsError
from cometmq.model.topic import retry_topic_of
from cometmq.spark.handling import listen as listens
from cometmq.spark.handling.batch_runner import handle
from cometmq.spark.handling.worker_client import forget_worker_clients
from cometmq.spark.source import source_options
from cometmq.spark.source.batch_reader import BatchReader
from cometmq.spark.source.stream_reader import StreamReader
from cometmq.spark.tables.backlog import backlog
from cometmq.wire.codes import RequestCode
from spark.guarded import KEYS, WRONG, Gate
from spark.micro_batches import Here
from spark.sink_tasks import Task
from spark.streams import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spark.live import Live

PEM = Path(__file__).parents[1] / "client" / "session" / "localhost.pem"
TLS = {"tls": "true", "tlsCaFile": str(PEM)}
SECURITY = {**KEYS, **TLS}
LONG_MS = "100000"
"""Longer than a test may take: what is tried again until then fails."""
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_numbers = itertools.count()


@pytest.fixture
def gate(live: Live) -> Iterator[Gate]:
    with Gate(live.namesrv, live.broker, PEM) as standing:
        yield standing


def bodies(reader: BatchReader | StreamReader, parts: Iterable[Any]) -> list[int]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(int(body.as_py()) for batch in batches for body in batch.column("body"))


def test_a_batch_is_read_with_every_request_signed(live: Live, gate: Gate, topic: str) -> None:
    live.send(topic, 0, texts(2500))
    options = {"namesrv": gate.addr, "topic": topic, **SECURITY, "startingTimestamp": "5"}
    reader = BatchReader(source_options.parse(options))
    assert bodies(reader, reader.partitions()) == list(range(2500))
    wanted = {RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO}
    assert wanted | {RequestCode.GET_ROUTEINFO_BY_TOPIC} <= set(gate.signed)
    assert not gate.unsigned


def test_a_stream_waits_for_messages_and_commits(live: Live, gate: Gate, topic: str) -> None:
    group = f"secured{next(_numbers)}"
    options = {"namesrv": gate.addr, "topic": topic, **SECURITY, "startingOffsets": "earliest"}
    options |= {"group": group, "commitOffsets": "true", "idleWaitMs": "20000"}
    reader = StreamReader(source_options.parse(options))
    live.send(topic, 0, texts(10))
    first = reader.initialOffset()
    end = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert bodies(reader, reader.partitions(first, end)) == list(range(10))
    timer = threading.Timer(0.2, lambda: live.send(topic, 1, texts(10, 15)))
    timer.start()
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    timer.join()
    assert bodies(reader, reader.partitions(end, later)) == list(range(10, 15))
    reader.stop()
    assert gate.signed[RequestCode.UPDATE_CONSUMER_OFFSET]
    assert not gate.unsigned


@pytest.mark.parametrize("keys", [0, 3])
def test_rows_are_sent_signed(gate: Gate, live: Live, topic: str, keys: int) -> None:
    Task(gate.addr, topic, 1000, keys=keys).run(**SECURITY)
    assert sorted(Task(live.namesrv, topic, 1000).stored()) == list(range(1000))
    assert any(gate.signed[code] for code in SENDS)
    assert not gate.unsigned


@pytest.mark.parametrize("keys", [WRONG, {}])
def test_wrong_keys_end_a_read_at_once(gate: Gate, topic: str, keys: dict[str, str]) -> None:
    options = {"namesrv": gate.addr, "topic": topic, **TLS, **keys, "retryForMs": LONG_MS}
    reader = BatchReader(source_options.parse(options))
    with pytest.raises(AccessDenied, match="answered code 16: the gate knows no such user; "):
        reader.partitions()
    assert gate.unsigned[RequestCode.GET_TOPIC_STATS_INFO] == 1


def test_wrong_keys_end_a_task_that_reads(live: Live, gate: Gate, topic: str) -> None:
    live.send(topic, 0, texts(5))
    right = {"namesrv": gate.addr, "topic": topic, **SECURITY}
    parts = BatchReader(source_options.parse(right)).partitions()
    wrong = source_options.parse({**right, **WRONG, "retryForMs": LONG_MS})
    with pytest.raises(AccessDenied, match="accessKey and secretKey"):
        list(BatchReader(wrong).read(parts[0]))
    assert gate.unsigned[RequestCode.PULL_MESSAGE] == 1


@pytest.mark.parametrize("sharding_keys", [0, 1])
def test_wrong_keys_end_a_write_soon_and_reject_no_row(
    gate: Gate, topic: str, tmp_path: Path, sharding_keys: int
) -> None:
    more = {**TLS, **WRONG, "retryForMs": LONG_MS, "rejectedPath": str(tmp_path)}
    with pytest.raises(RowNotSent, match=r"code 16: .*accessKey and secretKey") as failed:
        Task(gate.addr, topic, 1, keys=sharding_keys).run(**more)
    assert "nobody-may-see" not in str(failed.value)
    assert list(tmp_path.iterdir()) == []
    assert sum(gate.unsigned[code] for code in SENDS) == 3


def test_a_server_that_is_not_trusted_is_not_tried_again(gate: Gate, topic: str) -> None:
    more = {**KEYS, "tls": "true", "retryForMs": LONG_MS}
    reader = BatchReader(source_options.parse({"namesrv": gate.addr, "topic": topic, **more}))
    with pytest.raises(CertificateRefused, match=f"the certificate of {gate.addr} is refused"):
        reader.partitions()
    with pytest.raises(RowNotSent, match=f"the certificate of {gate.addr} is refused"):
        Task(gate.addr, topic, 1).run(**more)


def test_handlers_read_commit_and_send_back(live: Live, gate: Gate, topic: str) -> None:
    group = f"secured{next(_numbers)}"
    seen: list[int] = []

    def handler(messages: list[Any]) -> None:
        seen.extend(int(one.body) for one in messages)
        if messages[0].body == b"3":
            raise ValueError("not this one")

    live.send(topic, 0, texts(6))
    job, read = listens.prepare(
        group, topic, "*", Here(handler), SECURITY, 60.0, namesrv=gate.addr, consume_from="first"
    )
    reader = StreamReader(source_options.parse(read))
    first = reader.initialOffset()
    end = reader.latestOffset(first, reader.getDefaultReadLimit())
    try:
        for part in reader.partitions(first, end):
            assert handle(job, reader.read(part))[1] is None
    finally:
        forget_worker_clients()
        reader.stop()
    assert sorted(seen) == list(range(6))
    assert gate.signed[RequestCode.CONSUMER_SEND_MSG_BACK] == 1
    assert not gate.unsigned
    assert "nobody-may-see" not in repr(job)
    assert retry_topic_of(group) in read["subscribe"]


def test_handlers_with_wrong_keys_do_not_start(gate: Gate, topic: str) -> None:
    def prepare(source: dict[str, str], **settings: Any) -> None:
        listens.prepare("g", topic, "*", print, source, 60.0, namesrv=gate.addr, **settings)

    with pytest.raises(AccessDenied, match="code 16"):
        prepare({**TLS, **WRONG, "retryForMs": LONG_MS})
    with pytest.raises(SettingsError, match=r"access_key is said in `source`.*'accessKey': \.\.\."):
        prepare(TLS, access_key="a", secret_key="b")


def test_the_backlog_is_asked_with_keys(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["pipeline", "backlog", "-n", gate.addr, "--over=0.1", "--tls"]
    monkeypatch.setenv("COMETMQ_ACCESS_KEY", KEYS["accessKey"])
    assert command_line(command) == 1
    assert "COMETMQ_ACCESS_KEY is set without COMETMQ_SECRET_KEY" in capfd.readouterr().err
    monkeypatch.setenv("COMETMQ_SECRET_KEY", KEYS["secretKey"])
    assert command_line([*command, f"--tls-ca-file={PEM}"]) == 0
    assert gate.signed
    assert not gate.unsigned
    with pytest.raises(AccessDenied, match="code 16"):
        backlog("g", namesrv=gate.addr, over_s=0.1, options={**TLS, **WRONG})
