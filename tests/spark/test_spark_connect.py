"""The sink by way of Spark Connect, with a server of its own in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cometmq
from cometmq.spark.java_runtime import java_home

if TYPE_CHECKING:
    from spark.live import Live

PROGRAM = Path(__file__).with_name("connect_write.py")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_frames_and_streams_are_written_and_deduplicated_by_spark_connect(
    live: Live, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")
    copy = live.make_topic(f"{topic}Copy", 2)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), live.namesrv, topic, copy, str(tmp_path)],
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
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
