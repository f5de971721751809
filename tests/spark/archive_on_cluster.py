"""An archive job on a cluster of Spark that loses an executor and a worker amid its commits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from client.short_delay_cluster import until
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import LocalTableFiles

if TYPE_CHECKING:
    from pathlib import Path

    from spark.standalone import StandaloneCluster

COMMIT_ROWS = 500


def archive_through_kills(
    cluster: StandaloneCluster, namesrv: str, topic: str, place: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Archive a topic of 3,000 messages or more; what the job reports, and what `verify` does."""
    given = (str(place), "-n", namesrv, "--json")
    job = cluster.command("pipeline", "archive", topic, *given, "--max-rows", str(COMMIT_ROWS))
    try:
        _wait_for_commits(place, 2)
        cluster.kill_executor(0)
        _wait_for_commits(place, 5)
        cluster.kill_worker(1)
        done = json.loads(job.result(400))
    finally:
        job.kill()
        cluster.restore_workers()
    audit = cluster.command("pipeline", "verify", *given, "--bodies").result(400)
    return done, json.loads(audit)


def _wait_for_commits(place: Path, count: int) -> None:
    """Wait until the table has files of so many commits."""

    def commits() -> int:
        files = ManifestLog(LocalTableFiles(place)).current.files if place.exists() else ()
        return len({file.path.rpartition("/")[0] for file in files})

    until(lambda: commits() >= count, 500)
