"""Failures of four kinds, and the policy that gives each an end of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from cometmq import OnFailure, TableSink

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.rules.failures.failure_policy import FailurePolicy


def table_at(path: Path) -> TableSink:
    """A sink into a table `failed`, which is made."""
    sink = TableSink(lambda: sqlite3.connect(path), "failed")
    with closing(sqlite3.connect(path)) as database:
        database.execute(sink.schema())
    return sink


def four_kinds(
    key: str, path: Path
) -> tuple[dict[str, BaseException], dict[type[BaseException], FailurePolicy]]:
    """What the handler of these bodies is to raise, and their policy; one is stored at `path`."""
    errors = {
        f"{key}dead": ValueError("bad"),
        f"{key}skipped": KeyError("unknown"),
        f"{key}stored": OSError("away"),
        f"{key}retried": RuntimeError("once more"),
    }
    policy = {
        ValueError: OnFailure.dead_letter(),
        LookupError: OnFailure.skip(),
        OSError: OnFailure.store(table_at(path)),
        Exception: OnFailure.retry(1, OnFailure.skip()),
    }
    return errors, policy
