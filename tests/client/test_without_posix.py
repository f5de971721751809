"""The client on systems without what only POSIX has, as Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cometmq.testing.cluster import LocalCluster

PROGRAM = Path(__file__).with_name("process_without_posix.py")


def test_the_client_imports_sends_and_consumes_where_posix_is_missing(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path / "store") as cluster:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), cluster.namesrv, str(tmp_path / "client")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"},
        )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.pop("modules") > 100
    assert found == {
        **dict.fromkeys(("concurrent", "orderly", "by_key", "broadcasting"), 20),
        **dict.fromkeys(("by_key again", "broadcasting again"), 0),
        "files": [".bak", ".done", ".json"],
    }
