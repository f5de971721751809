"""kill -9 of an archive job, and of Spark's processes under it: the next run makes it exact."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from client.short_delay_cluster import until
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import LocalTableFiles
from spark.standalone import command_has
from spark.streams import texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
PROGRAM = Path(__file__).with_name("archive_process.py")
ROUNDS = 30


def started(live: Live, topic: str, place: Path, point: str, rows: int) -> subprocess.Popen[bytes]:
    """A job in a session of its own, so that all its processes can be ended together."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), live.namesrv, topic, str(place), point, str(rows)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_all(job: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.communicate()


def numbers_in(spark: SparkSession, place: Path) -> list[int]:
    return sorted(int(row.body) for row in read_archive(spark, place).select("body").collect())


def files_of(place: Path) -> set[str]:
    return ManifestLog(LocalTableFiles(place)).current.paths()


@pytest.mark.timeout(300)
def test_a_job_killed_between_data_and_manifest_is_repeated_exactly(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    place = tmp_path / "table"
    live.send(topic, 0, texts(0, 60))
    live.send(topic, 1, texts(60, 100))
    job = started(live, topic, place, "written:2", 50)
    try:
        assert job.wait(200) == -signal.SIGKILL
    finally:
        end_all(job)
    assert len(numbers_in(spark, place)) == 50, "the first commit is whole"
    assert len(list(place.rglob("commit=*"))) == 2, "the second has left its data"
    assert archive(spark, topic, place, namesrv=live.namesrv).rows == 50
    assert numbers_in(spark, place) == list(range(100))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kills_of_driver_jvm_and_workers_at_any_time_leave_an_exact_table(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    place, dice, sent = tmp_path / "table", random.Random(7), 25
    live.send(topic, 0, texts(0, sent))
    kinds = ("driver", "jvm", "worker")
    archive(spark, topic, place, namesrv=live.namesrv)  # there is a table, whatever is killed
    for number in range(ROUNDS):
        before = files_of(place)
        job = started(live, topic, place, "", 40)
        stop = threading.Event()
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == b"started\n"
            end_s = time.monotonic() + dice.uniform(0.5, 8)
            while time.monotonic() < end_s:
                live.send(topic, dice.randrange(2), texts(sent, sent + 25))
                sent += 25
                stop.wait(0.05)
            if number % 2:  # every other job is killed after it has committed, at the earliest
                until(lambda known=before: files_of(place) != known, 200)
            kill_one(job, kinds[number % 3])
            time.sleep(dice.uniform(0, 1))
        finally:
            end_all(job)
        assert len(set(numbers_in(spark, place))) == len(numbers_in(spark, place))
    archive(spark, topic, place, namesrv=live.namesrv)
    assert numbers_in(spark, place) == list(range(sent))
    assert verify_archive(spark, place, namesrv=live.namesrv, bodies=True).is_exact


def kill_one(job: subprocess.Popen[bytes], kind: str) -> None:
    """Kill the job's process, its JVM, or one of Spark's Python workers once there is one."""
    root = psutil.Process(job.pid)
    if kind == "driver":
        root.kill()
        return
    part = "SparkSubmit" if kind == "jvm" else "pyspark.daemon"

    found: list[psutil.Process] = []

    def is_there() -> bool:
        found[:] = [each for each in root.children(recursive=True) if command_has(each, part)]
        return bool(found)

    until(is_there, 200)
    with contextlib.suppress(psutil.NoSuchProcess):
        found[-1].kill()
