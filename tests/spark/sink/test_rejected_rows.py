"""The files of rejected rows: seen once a batch is committed, once whatever is replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cometmq.spark.sink import rejected_rows
from cometmq.spark.sink.rejected_rows import RejectedRows, WrittenBatch
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.row_decisions import RowDecisions

if TYPE_CHECKING:
    from pathlib import Path

THIRD = WrittenBatch("0f-1", 3)


def stage(path: Path, partition: int, *bodies: bytes, written: WrittenBatch = THIRD) -> str | None:
    """Stage the rows of a task whose bodies begin with an x; the name of the file."""
    columns = RowColumns(frozenset({"body"}), is_read=False)
    rejected = RejectedRows(str(path), written, partition)
    batch = pa.RecordBatch.from_pydict({"body": list(bodies)})
    for chunk in RowDecisions(columns, "T", "place", 2).chunks([batch]):
        chunk.refused |= {
            at: "why" for at, body in enumerate(chunk.bodies.to_pylist()) if body[:1] == b"x"
        }
        rejected.add(chunk)
    return rejected.finish()


def commit(path: Path, **staged: str | None) -> None:
    named = {int(key[1:]): name for key, name in staged.items() if name is not None}
    rejected_rows.commit(str(path), THIRD, named)


def table(path: Path) -> list[tuple[bytes, int, int]]:
    files = sorted(path.glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [(row["body"], row["rejected"]["partition"], row["rejected"]["row"]) for row in rows]


def test_rows_are_seen_once_the_batch_is_committed(tmp_path: Path) -> None:
    assert stage(tmp_path, 0, b"a", b"b") is None
    name = stage(tmp_path, 1, b"a", b"x1", b"b", b"x2")
    assert table(tmp_path) == []
    commit(tmp_path, p1=name)
    assert table(tmp_path) == [(b"x1", 1, 1), (b"x2", 1, 3)]
    row = pq.read_table(tmp_path / "0f-1-3-1.parquet").to_pylist()[0]["rejected"]
    assert row.pop("at") is not None
    assert row == {
        "reason": "why", "topic": "T", "query": "0f-1", "batch": 3, "partition": 1, "row": 1,
    }  # fmt: skip


def test_an_attempt_that_does_not_count_leaves_nothing(tmp_path: Path) -> None:
    stage(tmp_path, 0, b"x1")
    name = stage(tmp_path, 0, b"x1")
    other = stage(tmp_path, 0, b"x1", written=WrittenBatch("0f-1", 33))
    commit(tmp_path, p0=name)
    assert table(tmp_path) == [(b"x1", 0, 0)]
    assert [file.name for file in (tmp_path / "_staged").iterdir()] == [other]
    failed = RejectedRows(str(tmp_path), THIRD, 5)
    failed.discard()


def test_a_batch_that_is_replayed_replaces_its_rows_and_no_others(tmp_path: Path) -> None:
    other = stage(tmp_path, 0, b"x9", written=WrittenBatch("0f-1", 33))
    assert other is not None
    rejected_rows.commit(str(tmp_path), WrittenBatch("0f-1", 33), {0: other})
    first = stage(tmp_path, 0, b"x1"), stage(tmp_path, 1, b"x2")
    commit(tmp_path, p0=first[0], p1=first[1])
    assert len(table(tmp_path)) == 3
    commit(tmp_path, p2=stage(tmp_path, 2, b"x1", b"x2"))
    assert table(tmp_path) == [(b"x1", 2, 0), (b"x2", 2, 1), (b"x9", 0, 0)]
    commit(tmp_path)
    assert table(tmp_path) == [(b"x9", 0, 0)]


def test_a_write_without_rejected_rows_makes_no_directory(tmp_path: Path) -> None:
    assert stage(tmp_path / "none", 0, b"a") is None
    commit(tmp_path / "none")
    assert not (tmp_path / "none").exists()
