"""The page of guarantees names tests that exist, and says something of every kind and failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cometmq.settings.store import StoreSettings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
KINDS = (
    "send",
    "one-way",
    "batch",
    "half message",
    "delayed",
    "commit of an offset",
    "dead letter",
)
FAILURES = (
    "The process dies", "Power cut", "Torn write", "Flipped bit", "Disk full", "A flush (fsync)",
    "A flush that lies", "The clock steps", "A pause of the broker", "A pause of a consumer",
    "Partition between client", "Partition between master", "The master is lost", "Two at once",
)  # fmt: skip
OTHERS = "every other kind"
TESTS = dict(re.findall(r'^\[(\w+)\]: \S+ "(test_\w+)"$', TEXT, re.MULTILINE))


def rows(title: str) -> list[list[str]]:
    """The rows of the first table under a title, each a list of cells."""
    part = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [line[2:-2].split(" | ") for line in lines[1:]]


def cells(failure: str) -> dict[str, list[str]]:
    """The outcomes of a failure by kind: four of ours and Apache's."""
    (part,) = re.findall(rf"\n### {re.escape(failure)}.*?(?=\n##)", TEXT, re.DOTALL)
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    table = [line[2:-2].split(" | ") for line in lines]
    assert table[0][1:] == [
        "`ASYNC_FLUSH`", "`SYNC_FLUSH`", "`ASYNC_FLUSH`, slave", "`SYNC_FLUSH`, slave", "Apache",
    ]  # fmt: skip
    return {kind: outcomes for kind, *outcomes in table[1:]}


def test_every_test_that_the_page_names_exists() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    known = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(files.values()), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 20
    assert sorted(named - known) == []
    for path, name in re.findall(r'^\[\w+\]: \.\./(\S+) "(test_\w+)"$', TEXT, re.MULTILINE):
        assert f"def {name}(" in files[ROOT / path], path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_send_says_what_acknowledged_means_and_what_shows_it(kind: str) -> None:
    (row,) = [row for row in rows('What "acknowledged" means') if row[0].startswith(kind)]
    assert len(row) == 6
    assert "`test_" in row[-1]


@pytest.mark.parametrize("failure", FAILURES)
def test_every_kind_has_an_outcome_in_each_column_and_a_test_or_says_there_is_none(
    failure: str,
) -> None:
    found = cells(failure)
    said = set(found) - {OTHERS}
    kinds = {kind for kind in KINDS if any(one.startswith(kind) for one in said)}
    assert len(said) == len(kinds), "a row is of a kind that is none"
    assert kinds == set(KINDS) or OTHERS in found
    for kind, outcomes in found.items():
        assert len(outcomes) == 5, kind
        for cell in outcomes[:4]:
            named = re.findall(r"\[(\w+)\](?!\()", cell)
            assert named or "no test" in cell or cell == "no slave", (kind, cell)
            assert set(named) <= set(TESTS), (kind, cell)


def test_there_is_no_failure_and_no_test_beside_them() -> None:
    part = TEXT.partition("\n## Failures\n")[2].partition("\n## ")[0]
    titles = re.findall(r"^### (.*)", part, re.MULTILINE)
    assert all(any(title.startswith(one) for one in FAILURES) for title in titles)
    assert set(re.findall(r"\[(\w\d)\]", part)) == set(TESTS)


def test_the_seconds_at_stake_are_those_of_the_settings() -> None:
    store = StoreSettings()
    assert store.flush_disk_type == "ASYNC_FLUSH"
    assert (store.flush_interval_ms, store.flush_thorough_interval_ms) == (500, 10_000)
    assert store.flush_least_pages * 4 == 16
