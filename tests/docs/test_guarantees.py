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
    "the process dies", "power cut", "torn write", "flipped bit", "disk full", "fsync that lies",
    "the clock steps", "a pause", "partition", "the master is lost", "two at once",
)  # fmt: skip


def rows(title: str) -> list[list[str]]:
    """The rows of the first table under a title, each a list of cells."""
    part = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [line[2:-2].split(" | ") for line in lines[1:]]


def test_every_test_that_the_page_names_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    known = set(re.findall(r"^(?:async )?def (test_\w+)", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 40
    assert sorted(named - known) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_send_says_what_acknowledged_means_and_what_shows_it(kind: str) -> None:
    (row,) = [row for row in rows('What "acknowledged" means') if row[0].startswith(kind)]
    assert len(row) == 6
    assert "`test_" in row[-1]


@pytest.mark.parametrize("failure", FAILURES)
def test_every_failure_has_an_outcome_in_each_column_and_a_test_or_says_there_is_none(
    failure: str,
) -> None:
    found = [row for row in rows("Failures") if row[0].startswith(failure)]
    assert found
    for row in found:
        assert len(row) == 4
        shown = [cell for cell in row[1:] if re.search(r"`test_\w+`|no test", cell)]
        assert shown, row[0]


def test_the_seconds_at_stake_are_those_of_the_settings() -> None:
    store = StoreSettings()
    assert store.flush_disk_type == "ASYNC_FLUSH"
    assert (store.flush_interval_ms, store.flush_thorough_interval_ms) == (500, 10_000)
    assert store.flush_least_pages * 4 == 16
