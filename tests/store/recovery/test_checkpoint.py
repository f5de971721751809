"""Checkpoints: what was saved is loaded, and values that cannot be true are ignored."""

from pathlib import Path
from random import Random

import pytest

from cometmq.store.recovery import checkpoint as module
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.testing.sim_files import SimClock, SimFiles

PATH = Path("/checkpoint")


@pytest.fixture
def files():
    return SimFiles(Random(1), SimClock())


def saved(files, dispatched, newest, entries, index_mark, checksums_from=-1):
    checkpoint = Checkpoint(files, PATH)
    checkpoint.dispatched = dispatched
    checkpoint.newest = newest
    checkpoint.entries = entries
    checkpoint.index_mark = index_mark
    checkpoint.checksums_from = checksums_from
    checkpoint.save()
    checkpoint.close()


def loaded(files):
    checkpoint = Checkpoint(files, PATH)
    checkpoint.load()
    return checkpoint.dispatched, checkpoint.newest, checkpoint.entries, checkpoint.index_mark


def test_what_was_saved_is_loaded(files):
    saved(files, 300, 200, 3, (20260101, 4, 300))
    assert loaded(files) == (300, 200, 3, (20260101, 4, 300))


@pytest.mark.parametrize("values", [(200, 200, 3), (200, 100, -1), (-2, -3, 0)])
def test_values_that_cannot_be_true_are_never_saved(files, values):
    with pytest.raises(AssertionError):
        saved(files, *values, None)


@pytest.mark.parametrize("values", [(200, 200, 3), (200, 100, -1), (-2, -3, 0)])
def test_values_that_cannot_be_true_are_ignored_in_a_file(files, values, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "_is_possible", lambda *_: True)
        saved(files, *values, (20260101, 4, 300))
    assert loaded(files) == (-1, -1, 0, (20260101, 4, 300))


def test_where_checksums_begin_is_believed_while_nobody_else_has_written(files):
    saved(files, 300, 200, 3, None, checksums_from=100)
    checkpoint = Checkpoint(files, PATH)
    checkpoint.load()
    assert checkpoint.with_checksum == range(100, 300)
    raw = bytearray(files.read(PATH))
    raw[7] ^= 1
    files.write(PATH, bytes(raw))
    checkpoint = Checkpoint(files, PATH)
    checkpoint.load()
    assert not checkpoint.with_checksum
