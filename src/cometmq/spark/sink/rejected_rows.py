"""The table of rows that could not be sent: Parquet files in a directory that all tasks share.

Owns the files and their columns. Invariants: no reader sees what a task wrote before the driver
commits the batch; committing a batch again replaces its files, so a row that could not be sent is
in the table once, whatever was retried or replayed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.sink.row_columns import REJECTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyarrow import parquet

    from cometmq.spark.sink.row_decisions import RowChunk

_STAGED = "_staged"  # readers of Parquet leave out what begins with an underscore


class WrittenBatch(NamedTuple):
    """Which batch of which query is written; a batch write has an id of its own, and batch 0."""

    query: str
    batch: int

    def file_name(self, partition: int | str) -> str:
        """The name of a partition's file; `*` stands for any."""
        return f"{self.query}-{self.batch}-{partition}.parquet"


class RejectedRows:
    """Writes the rejected rows of one task to a staged file, once there is one."""

    def __init__(self, path: str, written: WrittenBatch, partition: int) -> None:
        self._written, self._partition = written, partition
        self._file = Path(path, _STAGED, written.file_name(f"{partition}-{uuid4().hex}"))
        self._writer: parquet.ParquetWriter | None = None
        self.count = 0

    def add(self, chunk: RowChunk) -> None:
        """Write the refused rows of a chunk that was sent; raises OSError when that fails."""
        if not chunk.refused:
            return
        import pyarrow as pa

        places = sorted(chunk.refused)
        rows = chunk.rows.take(pa.array(places, pa.int64()))
        reasons = self._reasons(chunk, places)
        schema = rows.schema.append(pa.field(REJECTED, reasons.type))
        table = pa.Table.from_arrays([*rows.columns, reasons], schema=schema)
        self._open(schema).write_table(table)
        self.count += len(places)

    def finish(self) -> str | None:
        """Close the file, on disk when this returns; its name, None without rows."""
        if self._writer is None:
            return None
        self._writer.close()
        self._writer = None
        _sync(self._file)
        return self._file.name

    def discard(self) -> None:
        """Delete what was staged; does nothing after `finish`."""
        if self._writer is not None:
            self._writer.close()
            self._file.unlink(missing_ok=True)

    def _open(self, schema: pa.Schema) -> parquet.ParquetWriter:
        if self._writer is None:
            from pyarrow import parquet

            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._file, schema)
        return self._writer

    def _reasons(self, chunk: RowChunk, places: list[int]) -> pa.StructArray:
        """The column that says of each row why, and which row of which batch it is."""
        import pyarrow as pa

        count, (query, batch) = len(places), self._written
        now = SystemClock().now_ms() * 1000
        columns: dict[str, pa.Array] = {
            "reason": pa.array([chunk.refused[at] for at in places], pa.string()),
            "topic": pa.array([chunk.topics[at] for at in places], pa.string()),
            "query": pa.array([query] * count, pa.string()),
            "batch": pa.array([batch] * count, pa.int64()),
            "partition": pa.array([self._partition] * count, pa.int32()),
            "row": pa.array([chunk.first + at for at in places], pa.int64()),
            "at": pa.array([now] * count, pa.timestamp("us", tz="UTC")),
        }
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def commit(path: str, written: WrittenBatch, staged: Mapping[int, str]) -> None:
    """Show the staged files, named by partition, as the batch's; those of an earlier run go."""
    folder = Path(path)
    if not folder.is_dir():
        assert not staged, "tasks stage files in the folder"
        return
    shown = {folder / written.file_name(partition): name for partition, name in staged.items()}
    for final, name in shown.items():
        (folder / _STAGED / name).replace(final)
    for file in folder.glob(written.file_name("*")):
        if file not in shown:
            file.unlink(missing_ok=True)
    _sync(folder)
    forget_staged(path, written)


def forget_staged(path: str, written: WrittenBatch) -> None:
    """Delete what attempts of a batch staged that does not count."""
    for file in Path(path, _STAGED).glob(written.file_name("*")):
        file.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have the file, or the names in the folder, written to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
