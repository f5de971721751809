"""Reads and writes by way of Spark Connect, with servers in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cometmq
from cometmq.spark.java_runtime import java_home
from spark.page_examples import example

if TYPE_CHECKING:
    from spark.live import Live
    from spark.standalone import StandaloneCluster

PROGRAM = Path(__file__).with_name("connect_write.py")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1000)]


def run(arguments: list[str], place: Path) -> None:
    """Run a program that is a client of Spark Connect."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(
                [str(Path(cometmq.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
            ),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_frames_and_streams_are_written_and_deduplicated_by_spark_connect(
    live: Live, topic: str, tmp_path: Path
) -> None:
    copy = live.make_topic(f"{topic}Copy", 2)
    run([str(PROGRAM), live.namesrv, topic, copy, str(tmp_path)], tmp_path)


def test_the_example_of_the_guide_runs_on_a_cluster_by_spark_connect(
    cluster: StandaloneCluster, live: Live, tmp_path: Path
) -> None:
    code = example("python", ".remote(").replace("127.0.0.1:9876", live.namesrv)
    code = code.replace('"checkpoint"', repr(str(tmp_path / "checkpoint")))
    with cluster.connect_server() as address:
        run(["-c", code.replace("127.0.0.1:15002", address)], tmp_path)
