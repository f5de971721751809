"""Manifests on a real disk: atomic, one writer at a time, leftovers deleted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq import MessageQueue
from cometmq.errors import CometError, TableHasNewerWriter
from cometmq.spark.tables.archived_ranges import ArchivedQueues, ArchivedRanges
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import LocalTableFiles

QUEUE = MessageQueue("T", "broker-a", 0)


def log_in(place: Path, now_ms: int = 1_000_000_000) -> ManifestLog:
    return ManifestLog(LocalTableFiles(place), now_ms=lambda: now_ms)


def write(place: Path, commit: str, *names: str) -> None:
    for name in names:
        path = place / "data" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"rows")
        path.with_name(f".{path.name}.crc").touch()


def add(place: Path, log: ManifestLog, begin: int, *names: str) -> None:
    commit = log.new_commit()
    write(place, commit, *names)
    before = log.archived.queues.get(QUEUE)
    one = ArchivedRanges(((begin, begin + 1),), 1, 0)
    assert before is None or before.end <= begin
    log.commit(log.archived.extended({QUEUE: one}, 5), log.written(commit))


def files_in(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in (place / "data").rglob("*.parquet")}


def test_a_commit_is_seen_whole_by_whoever_reads_next(tmp_path: Path) -> None:
    assert log_in(tmp_path).current.version == 0
    log = log_in(tmp_path)
    log.begin({"a": 1}, {"data": {}})
    add(tmp_path, log, 0, "day=1/a.parquet", "day=1/b.parquet")
    again = log_in(tmp_path)
    assert again.current == log.current
    assert again.archived == ArchivedQueues({QUEUE: ArchivedRanges(((0, 1),), 1, 0)}, 5)
    assert again.settings == {"a": 1}
    assert {one.path for one in again.current.files} == files_in(tmp_path)
    assert {one.partition for one in again.current.files} == {"data/day=1"}
    assert not list(tmp_path.rglob("*.json.*")), "no drafts are left"


def test_a_job_that_begins_later_excludes_the_earlier_and_deletes_what_it_left(
    tmp_path: Path,
) -> None:
    first = log_in(tmp_path)
    first.begin({"a": 1}, {"data": {}})
    add(tmp_path, first, 0, "a.parquet")
    write(tmp_path, first.new_commit(), "torn.parquet", "_temporary/0/x.parquet")
    second = log_in(tmp_path)
    second.begin({"a": 1}, {"data": {}})
    assert files_in(tmp_path) == {one.path for one in second.current.files}
    with pytest.raises(TableHasNewerWriter, match="let only one run at a time"):
        add(tmp_path, first, 1, "b.parquet")
    add(tmp_path, second, 1, "c.parquet")
    assert log_in(tmp_path).archived.queues[QUEUE].ranges == ((0, 2),)


class Paused(LocalTableFiles):
    """Another job runs between two steps of this one."""

    meanwhile: Callable[[], None] | None = None

    def names(self, folder: str) -> list[str]:
        if folder == "data" and (other := self.meanwhile):
            self.meanwhile = None
            other()
        return super().names(folder)


def test_a_job_that_is_slow_to_begin_deletes_nothing_of_one_that_began_after_it(
    tmp_path: Path,
) -> None:
    def run_another() -> None:
        other = log_in(tmp_path)
        other.begin({"a": 1}, {"data": {}})
        add(tmp_path, other, 0, "a.parquet")
        write(tmp_path, other.new_commit(), "being-written.parquet")

    files = Paused(tmp_path)
    files.meanwhile = run_another
    slow = ManifestLog(files)
    slow.begin({"a": 1}, {"data": {}})
    found = files_in(tmp_path)
    assert {one.path for one in log_in(tmp_path).current.files} < found
    assert len(found) == 2
    with pytest.raises(TableHasNewerWriter):
        add(tmp_path, slow, 0, "b.parquet")


def test_a_job_that_missed_many_commits_cannot_fill_a_gap_of_deleted_manifests(
    tmp_path: Path,
) -> None:
    sleeper = log_in(tmp_path)
    sleeper.begin({"a": 1}, {"data": {}})
    other = log_in(tmp_path)
    for number in range(20):
        other.begin({"a": 1}, {"data": {}})
        add(tmp_path, other, number, f"{number}.parquet")
    names = sorted(path.name for path in (tmp_path / "_manifests").iterdir())
    assert len(names) == 8
    assert int(names[-1].removesuffix(".json")) == other.current.version == 41
    with pytest.raises(TableHasNewerWriter):
        add(tmp_path, sleeper, 99, "late.parquet")
    assert log_in(tmp_path).archived == other.archived


def test_merged_files_stay_for_a_while_and_are_then_deleted(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.begin({"a": 1}, {"data": {}})
    for number in range(3):
        add(tmp_path, log, number, "day=1/a.parquet")
    old = list(log.current.files)
    commit = log.new_commit()
    write(tmp_path, commit, "day=1/merged.parquet")
    (new,) = log.written(commit)
    log.commit_merge(old, [new])
    assert log_in(tmp_path).current.files == (new,)
    log_in(tmp_path, 1_003_600_000).begin({"a": 1}, {"data": {}})
    assert len(files_in(tmp_path)) == 4
    log_in(tmp_path, 1_003_600_001).begin({"a": 1}, {"data": {}})
    assert files_in(tmp_path) == {new.path}
    assert not list(tmp_path.rglob("*a.parquet.crc"))


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "_manifests").mkdir()
    (tmp_path / "_manifests" / "00000000000000000001.json").write_text('{"format": 1')
    with pytest.raises(CometError, match=r"0001\.json is damaged and cannot be read"):
        log_in(tmp_path)
    (tmp_path / "_manifests" / "00000000000000000001.json").write_text('{"format": 2}')
    with pytest.raises(CometError, match="has format 2, written by another release"):
        log_in(tmp_path)
