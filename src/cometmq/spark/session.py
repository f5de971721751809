"""A Spark session that fits this data source: small, quiet, and fast with small batches.

Owns the settings, each of which was measured, and the environment that must exist before the JVM
starts. Invariant: the caller's settings win; there is one session a process, as always in Spark.
Works on one machine (`local[n]`, checkpoints on a local disk). On a cluster, create the session
as the cluster needs it: the data source needs no setting.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.spark.java_runtime import java_home
from cometmq.spark.pyspark_version import require_pyspark
from cometmq.spark.source.source_options import SLOTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def spark_session(
    app: str,
    *,
    cores: int | None = None,
    heap_mb: int = 1024,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark inside this process, or return the session that is already there.

    `cores` (default: all) is how many tasks run at once and how many partitions a read has;
    `heap_mb` is the JVM's heap; `conf` adds settings or replaces ours (Java options are added to
    ours). A running JVM keeps its own. Raises SettingsError without Java, and
    with too old a PySpark.
    """
    require_pyspark()
    slots = cores or os.cpu_count() or 2
    _prepare_environment(slots)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(f"local[{slots}]")
    for key, value in _merged(_settings(slots, heap_mb), conf or {}).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _prepare_environment(slots: int) -> None:
    """Set what the JVM and the Python workers inherit; existing values stay."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ[SLOTS_VARIABLE] = str(slots)


def _merged(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    merged = {**ours, **theirs}
    if _JAVA_OPTIONS in theirs:  # the JVM takes the last of two that contradict each other
        merged[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {theirs[_JAVA_OPTIONS]}"
    return merged


def _settings(slots: int, heap_mb: int) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    return {
        "spark.driver.memory": f"{heap_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A deeper stack: stopping a query inside foreachBatch overflows the default one.
        _JAVA_OPTIONS: f"-Xss8m -Dlog4j2.configurationFile={quiet}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(slots),
        # Both halve the cost of a micro-batch; the second relies on atomic rename.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    }
