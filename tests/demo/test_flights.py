"""The whole job on about five thousand messages, kills and Spark included, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.short_delay_cluster import until
from cometmq.demo.flights.processes.process_memory import process_tree_mib
from cometmq.demo.flights.spark_tables import BODY


def command(directory: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "cometmq.cli.main", "demo", "flights", "--dir", str(directory), *more
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.timeout(500)
def test_the_whole_job_on_the_first_messages_counts_right_through_both_kills(tmp_path):
    directory = tmp_path / "flights"
    done = subprocess.run(
        command(directory, "--messages", "6000", "--json"),
        capture_output=True,
        text=True,
        timeout=460,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["passed"]
    assert 6000 <= report["messages"] < 6003
    assert [event.partition(",")[0] for event in report["events"]] == [
        "a consumer was killed",
        "the broker was killed and started again",
        f"{report['aircraft_parked']} aircraft were parked",
    ]
    assert 0 < report["aircraft_parked"] <= report["messages_parked"]
    assert report["control_violations"] > 0
    assert 0 < report["memory_peak_mib"] < 4096
    names = {check["name"] for check in report["checks"]}
    assert {
        "orderly group: numbers out of turn",
        "parked: handled before an earlier one was repaired",
        "Spark joins: rows after weather",
        "dead letters of flights-concurrent: in the topic",
    } <= names
    assert sorted(path.name for path in directory.iterdir()) == [
        ".cometmq-demo", "report.html", "report.json"
    ]  # fmt: skip
    until(lambda: not processes_in(directory), 15)


@pytest.mark.xdist_group("spark programs")
@pytest.mark.timeout(240)
def test_ctrl_c_leaves_no_process_behind(tmp_path):
    directory = tmp_path / "flights"
    job = subprocess.Popen(
        command(directory, "--messages", "3000"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: (directory / "producer-0.count").exists(), 80)
    job.send_signal(signal.SIGINT)
    assert job.wait(90) == 130
    until(lambda: not processes_in(directory), 15)  # the JVM ends a moment after its parent


@pytest.mark.xdist_group("spark programs")
@pytest.mark.timeout(120)
def test_kill_9_of_the_job_takes_its_processes_along(tmp_path):
    directory = tmp_path / "flights"
    job = subprocess.Popen(
        command(directory, "--messages", "3000"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: (directory / "producer-0.count").exists(), 80)
    job.kill()
    job.wait()
    until(lambda: not processes_in(directory), 15)


def test_a_directory_with_somebody_elses_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not delete")
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "holds files that no earlier run wrote" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_memory_counts_a_process_and_its_children():
    alone = process_tree_mib()
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(64 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    grown = process_tree_mib() - alone
    child.communicate(b"\n")
    assert not Path("/proc").is_dir() or 60 < grown < 100


def test_every_field_of_a_body_has_its_column():
    columns = [part.split()[0] for part in BODY.split(",")]
    assert {"event", "flight", "tail", "arr_time", "dep_delay"} < set(columns)
    assert len(columns) == len(set(columns))


def processes_in(directory: Path) -> list[int]:
    """JobProcesses whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(directory) in line:
                found.append(int(entry.name))
    return found
