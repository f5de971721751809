"""The log of real processes: what is in it, in which form, in which files, and no secret."""

from __future__ import annotations

import json
import logging
import signal
import sys
from typing import TYPE_CHECKING

from cli.shell import cometmq, sentence, serving
from client.short_delay_cluster import until
from cometmq import Message, Producer, PushConsumer, native
from cometmq.cli.log_output import JsonLineFormatter

if TYPE_CHECKING:
    from pathlib import Path

FREE = ("--namesrv-port=0", "--broker-port=0")
SECRET = "open-sesame-4711"


def test_the_log_says_who_starts_joins_makes_leaves_and_stops_and_no_secret(
    tmp_path: Path,
) -> None:
    conf = tmp_path / "b.conf"
    users = json.dumps({"username": "root", "password": SECRET})
    inner = json.dumps({"accessKey": "root", "secretKey": SECRET})
    conf.write_text(
        "authenticationEnabled=true\nlogFormat=json\n"
        f"logFile={tmp_path}/log\nlogLevels=store:ERROR\n"
        f"initAuthenticationUser={users}\ninnerClientAuthenticationCredentials={inner}\n"
    )
    store = ("--store", str(tmp_path / "s"))
    with serving(tmp_path, "standalone", "-vv", "-c", str(conf), *store, *FREE) as server:
        where = {"namesrv": server.facts["namesrv"], "access_key": "root", "secret_key": SECRET}
        with Producer("PG", **where) as producer:
            producer.send(Message("T", b"x"))
            consumer = PushConsumer("CG", **where)
            consumer.subscribe("T", "*", lambda messages: None)
            with consumer:
                until(lambda: "joins the consumer group CG" in (tmp_path / "log").read_text())
        code, stderr = server.end(signal.SIGTERM)
        assert (code, stderr) == (0, "")
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert SECRET not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    assert not [line for line in lines if line["logger"].startswith("cometmq.store.")]
    said = " | ".join(line["message"] for line in lines if line["level"] == "INFO")
    for expected in (
        "the name server serves at 127.0.0.1:",
        "broker broker-a at 127.0.0.1:",
        "the broker broker-a serves at",
        f"hot loops of the broker broker-a run in {native.form()}",
        "the topic T is made",
        "joins the producer group PG",
        "the group CG is made",
        "joins the consumer group CG",
        "leaves the consumer group CG",
        "unregisters",
        "the broker broker-a has stopped",
        "the name server at",
    ):
        assert expected in said, expected
    assert [line for line in lines if line["level"] == "DEBUG"], "-vv shows something"


def test_a_full_file_is_renamed_and_the_oldest_deleted(tmp_path: Path) -> None:
    settings = ("logFileBytesMax=1024", "logFilesMax=2", f"logFile={tmp_path}/log")
    options = [word for each in settings for word in ("--set", each)]
    store = ("--store", str(tmp_path / "s"))
    with serving(tmp_path, "standalone", "-vv", *store, *FREE, *options) as server:
        with Producer("PG", namesrv=server.facts["namesrv"]) as producer:
            for number in range(12):
                producer.send(Message(f"T{number}", b"x"))
        assert server.end(signal.SIGTERM) == (0, "")
    names = {path.name for path in tmp_path.glob("log*")}
    assert names == {"log", "log.1", "log.2"}
    assert all(path.stat().st_size <= 1024 for path in tmp_path.glob("log*"))


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    done = cometmq("namesrv", "-p0", "--set", f"logFile={tmp_path}/none/log")
    assert sentence(done) == f"logFile {tmp_path}/none/log cannot be written: {MISSING}"


MISSING = "No such file or directory"


def test_a_line_of_json_has_its_time_in_utc_and_its_error() -> None:
    try:
        raise ValueError("no amount\nat all")
    except ValueError:
        record = logging.LogRecord("a.b", logging.ERROR, "f", 1, "%s fails", ("x",), sys.exc_info())
    record.created = 1_700_000_000.25
    line = JsonLineFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["time"] == "2023-11-14T22:13:20.250Z"
    assert (found["level"], found["logger"], found["message"]) == ("ERROR", "a.b", "x fails")
    assert found["error"].endswith("ValueError: no amount\nat all")
