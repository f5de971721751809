# ruff: noqa: INP001
"""Writes docs/parity.md: what the client promises, and how it came out on both implementations.

    python scripts/parity_page.py            run tests/parity on both, then write the page
    python scripts/parity_page.py --only apache     run one implementation; the page stays as it is

Needs Java and Maven for Apache RocketMQ, as tests/interop does. Ends with 1 when a test failed.
The page says nothing that is not in the record of the run: date, versions and commit included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "parity.md"
IMPLEMENTATIONS = {"cometmq": "CometMQ", "apache": "Apache RocketMQ"}
MARKS = {"passed": "yes", "failed": "**no**", "skipped": "-"}


class Found(NamedTuple):
    """What a run left behind."""

    versions: dict[str, str]
    rows: dict[tuple[str, str], dict[str, list[str]]]
    """The outcomes by file and test, then by implementation: one for each case."""

    @property
    def failed(self) -> list[str]:
        """The tests of which a case failed somewhere."""
        return [
            test
            for (_, test), row in self.rows.items()
            if any("failed" in outcomes for outcomes in row.values())
        ]


def commit() -> str:
    """The commit that is run, and whether the tree has more than that."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(record: Path, only: str) -> None:
    """Runs the tests of one implementation or both; what fails is in the record."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/parity", "-m", "interop"]
    command += ["-k", only] if only else []
    environ = os.environ | {"COMETMQ_PARITY_RECORD": str(record)}
    subprocess.run(command, cwd=ROOT, env=environ, check=False)


def read(record: Path) -> Found:
    """The record as versions and rows."""
    found = Found({}, {})
    for line in record.read_text().splitlines():
        one = json.loads(line)
        if "version" in one:
            found.versions[one["implementation"]] = one["version"]
            continue
        row = found.rows.setdefault((one["file"], one["test"]), {})
        row.setdefault(one["implementation"], []).append(one["outcome"])
    return found


def cell(outcomes: list[str]) -> str:
    """Yes, no, and of how many cases where there are several."""
    worst = min(outcomes, key=("failed", "skipped", "passed").index, default="")
    passed = outcomes.count("passed")
    count = f" ({passed} of {len(outcomes)})" if len(outcomes) > 1 else ""
    return MARKS[worst] + count if worst else "not run"


def sentence(test: str) -> str:
    """A test's name as a sentence."""
    text = test.removeprefix("test_").replace("_", " ")
    return text[0].upper() + text[1:]


def page(found: Found, when: str, at: str) -> str:
    """The page as text."""
    implementations = " and ".join(
        f"{title} {found.versions.get(name, '(not run)')}"
        for name, title in IMPLEMENTATIONS.items()
    )
    cases = sum(len(outcomes) for row in found.rows.values() for outcomes in row.values())
    lines = [
        "# Parity",
        "",
        "The same tests (`tests/parity`) with our client, on our broker and on Apache RocketMQ's.",
        "Written by `python scripts/parity_page.py`; nothing here is typed in.",
        "",
        f"- {when}, commit {at}",
        f"- {implementations}",
        f"- {len(found.rows)} promises, {cases} tests, {len(found.failed)} promises not kept",
    ]
    last = ""
    for (file, test), row in sorted(found.rows.items(), key=lambda item: item[0][0]):
        if file != last:
            titles = " | ".join(IMPLEMENTATIONS.values())
            lines += ["", f"## {sentence(file)}", "", f"| What holds | {titles} |", "|---|---|---|"]
            last = file
        cells = [cell(row.get(implementation, [])) for implementation in IMPLEMENTATIONS]
        lines.append(f"| {sentence(test)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, write, and say whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(IMPLEMENTATIONS), default="")
    told = parser.parse_args()
    when, at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), commit()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.touch()
        run(record, told.only)
        found = read(record)
    if not told.only:
        PAGE.write_text(page(found, when, at))
    sys.stderr.write(f"{len(found.rows)} rows, failed: {found.failed}\n")
    sys.exit(bool(found.failed) or not found.rows)


if __name__ == "__main__":
    main()
