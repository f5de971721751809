"""What a run of an oracle did: no run counts in which nothing happened or nothing was compared.

With COMETMQ_WRITE=1 the figures go to tests/runs, from where docs/testing shows them
(scripts/testing_page.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from pathlib import Path

RUNS = Path(__file__).parent / "runs"


def record_run(oracle: str, part: str = "all", *, replay: str, **happened: int) -> None:
    """Fail where a figure is zero; write them down if that was asked for.

    `replay` is the command that does the same again. A later run of the same part replaces it.
    """
    nothing = [what for what, number in happened.items() if not number]
    assert not nothing, f"{oracle}: this run proves nothing, for there were no {', '.join(nothing)}"
    if os.environ.get("COMETMQ_WRITE") != "1":
        return
    RUNS.mkdir(exist_ok=True)
    path = RUNS / f"{oracle}.json"
    parts = json.loads(path.read_text()) if path.exists() else {}
    parts[part] = {
        "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "commit": _commit(),
        "python": platform.python_version(),
        "replay": replay,
        "happened": {what.replace("_", " "): number for what, number in happened.items()},
    }
    path.write_text(json.dumps(dict(sorted(parts.items())), indent=1) + "\n")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    said = subprocess.run(command, cwd=RUNS.parent, capture_output=True, text=True, check=True)
    return said.stdout.strip()
