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
    if not COMMIT:
        return
    RUNS.mkdir(exist_ok=True)
    path = RUNS / f"{oracle}.json"
    parts = json.loads(path.read_text()) if path.exists() else {}
    parts[part] = {
        "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "commit": COMMIT,
        "python": platform.python_version(),
        "replay": replay,
        "happened": {what.replace("_", " "): number for what, number in happened.items()},
    }
    path.write_text(json.dumps(dict(sorted(parts.items())), indent=1) + "\n")


def commit_under_test() -> str:
    """The commit of what is tested; `-dirty` if that was changed, which figures are not part of."""
    at = _git("rev-parse", "--short", "HEAD")
    kept = (f":(top,exclude){path}" for path in ("tests/runs", "tests/mutants", "docs/testing"))
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", *kept)
    return f"{at}-dirty" if changed else at


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    said = subprocess.run(command, cwd=RUNS.parent, capture_output=True, text=True, check=True)
    return said.stdout.strip()


COMMIT = commit_under_test() if os.environ.get("COMETMQ_WRITE") == "1" else ""
"""As the run begins: a long one may see others come. Empty: nothing is written."""
