"""RocketMQ's own SQL92 filter and ours over the same table; the golden file is what it said."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rules.sql_cases import CHOSEN, MESSAGES, drawn, verdicts

if TYPE_CHECKING:
    from interop.jvm import JavaHost

RULES = Path(__file__).parent.parent / "rules"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
GOLDEN = RULES / "filters" / "golden" / "sql92.json"
DRAWN = 20_000


@pytest.fixture(scope="module")
def theirs(java: JavaHost) -> dict[str, str]:
    """What RocketMQ's filter says of every case."""
    cases = [*CHOSEN, *drawn(92, DRAWN)]
    pairs = ["\x02".join(f"{key}\x01{value}" for key, value in each.items()) for each in MESSAGES]
    lines = [f"P{pair.encode().hex()}" for pair in pairs]
    lines += [f"E{case.encode().hex()}" for case in cases]
    done = subprocess.run(
        java.command("SqlTable"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = [line for line in done.stdout.splitlines() if line and not set(line) - set("XTFNE?")]
    assert len(said) == len(cases), done.stdout[-2000:]
    return dict(zip(cases, said, strict=True))


def test_every_chosen_filter_says_what_rocketmqs_says(theirs: dict[str, str]) -> None:
    wrong = [(case, theirs[case], verdicts(case)) for case in CHOSEN]
    assert [each for each in wrong if each[1] != each[2]] == []


def test_every_drawn_filter_says_what_rocketmqs_says(theirs: dict[str, str]) -> None:
    wrong = [(case, said, verdicts(case)) for case, said in theirs.items()]
    assert [each for each in wrong if each[1] != each[2]] == []


def test_the_golden_table_is_what_rocketmq_says(theirs: dict[str, str]) -> None:
    kept = {case: theirs[case] for case in [*CHOSEN, *drawn(92, DRAWN)[:400]]}
    if os.environ.get("COMETMQ_WRITE_GOLDEN"):
        table = {"messages": MESSAGES, "verdicts": kept}
        GOLDEN.write_text(json.dumps(table, indent=0, ensure_ascii=True) + "\n")
    assert json.loads(GOLDEN.read_text())["verdicts"] == kept
