"""What workers of Spark spare their garbage collections; without Spark."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from cometmq.spark.source import stream_reader, worker_heap

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_heap, "_done_in", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_nothing_is_frozen_in_a_process_that_is_no_worker() -> None:
    worker_heap.freeze_imports()
    assert gc.get_freeze_count() == 0


def test_a_task_freezes_what_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    worker_heap.freeze_imports()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    later = [[number] for number in range(1000)]
    worker_heap.freeze_imports()
    assert gc.get_freeze_count() <= frozen
    assert later


def test_a_forked_worker_freezes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    monkeypatch.setattr(worker_heap, "_done_in", os.getpid() + 1)
    worker_heap.freeze_imports()
    assert gc.get_freeze_count() > 0


def test_a_task_without_messages_freezes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(stream_reader, "freeze_imports", lambda: frozen.append("frozen"))
    for batches, expected in (([], []), (["a", "b"], ["frozen"])):
        monkeypatch.setattr(stream_reader, "read_batches", lambda *_, found=batches: iter(found))
        reader = object.__new__(stream_reader.StreamReader)
        reader._options = None
        assert list(reader.read(InputPartition(None))) == batches
        assert frozen == expected
