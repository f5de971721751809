"""The CPU of a send and of a pull, as a multiple of an echo's, stays near the baseline."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
BASELINE = BENCH / "results" / "hot-path.json"


def check(baseline: Path, processes: int = 3) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "utf8", str(BENCH / "hot_path.py"), "--check"]
    command += ["--baseline", str(baseline), "--processes", str(processes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_no_row_costs_a_third_more_than_the_baseline():
    done = check(BASELINE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_row_over_its_bound_is_named(tmp_path):
    known = json.loads(BASELINE.read_text())
    for form in known.values():
        form["ratios"]["pull 32 8x1"] /= 4
    (tmp_path / "lower.json").write_text(json.dumps(known))
    done = check(tmp_path / "lower.json", processes=1)
    assert done.returncode == 1
    assert done.stderr.startswith("hot path: pull 32 8x1 cost more than 1.33 times"), done.stderr
