# ruff: noqa: INP001
"""Writes docs/parity.md: what the client promises, and how it came out on both houses.

    python scripts/parity_page.py            run tests/parity on both, then write the page
    python scripts/parity_page.py --only apache     run one house, keep the other's column

Needs Java and Maven for Apache RocketMQ, as tests/interop does. Ends with 1 when a test failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "parity.md"
HOUSES = {"cometmq": "CometMQ", "apache": "Apache RocketMQ 5.5.0"}
MARKS = {"passed": "yes", "failed": "**no**", "skipped": "-"}
ROW = re.compile(
    r"^\| (?P<text>[^|]+) \| (?P<cometmq>[^|]+) \| (?P<apache>[^|]+) \|$", re.MULTILINE
)
Outcomes = dict[tuple[str, str], dict[str, str]]


def run(record: Path, only: str) -> None:
    """Runs the tests of one house or both; what fails is in the record."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/parity", "-m", "interop"]
    command += ["-k", only] if only else []
    environ = os.environ | {"COMETMQ_PARITY_RECORD": str(record)}
    subprocess.run(command, cwd=ROOT, env=environ, check=False)


def read(record: Path) -> Outcomes:
    """The outcomes by file and test; of several cases of a test the worst counts."""
    found: Outcomes = {}
    for line in record.read_text().splitlines():
        one = json.loads(line)
        row = found.setdefault((one["file"], one["test"]), {})
        if row.get(one["house"]) != "failed":
            row[one["house"]] = one["outcome"]
    return found


def sentence(test: str) -> str:
    """A test's name as a sentence."""
    text = test.removeprefix("test_").replace("_", " ")
    return text[0].upper() + text[1:]


def page(found: Outcomes, before: str) -> str:
    """The page; columns that were not run are taken from the page before."""
    old = {match["text"].strip(): match for match in ROW.finditer(before)}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    lines = [
        "# Parity",
        "",
        "The same tests (`tests/parity`) with our client, on our broker and on Apache RocketMQ's.",
        f"Written by `python scripts/parity_page.py` from a run on {time.strftime('%Y-%m-%d')}, "
        f"commit {commit}.",
    ]
    last = ""
    for (file, test), row in found.items():
        if file != last:
            titles = " | ".join(HOUSES.values())
            lines += ["", f"## {sentence(file)}", "", f"| What holds | {titles} |", "|---|---|---|"]
            last = file
        text = sentence(test)
        cells = [
            MARKS[row[house]] if house in row else old[text][house] if text in old else "not run"
            for house in HOUSES
        ]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, write, and say whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(HOUSES), default="")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.touch()
        run(record, told.only)
        found = read(record)
    PAGE.write_text(page(found, PAGE.read_text() if PAGE.exists() else ""))
    failed = [test for (_, test), row in found.items() if "failed" in row.values()]
    sys.stderr.write(f"{len(found)} rows in {PAGE.relative_to(ROOT)}, failed: {failed}\n")
    sys.exit(bool(failed) or not found)


if __name__ == "__main__":
    main()
