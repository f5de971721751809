"""What the source, the sink and handlers are compared with: formats that ask no broker.

`ready` yields Arrow batches with the columns of the source that were made once a task, as a table
and as a stream of small batches without end. `counting` adds up the lengths of the bodies that it
is given. `clocked` has a row whenever one is due, and its tasks write down how late they are asked
for it. `NotedDelay` is a handler; `NotedRows` does the same in a query without one. Spark's
Python workers import this file by name.
"""

from __future__ import annotations

import itertools
import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from cometmq.spark.source import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from cometmq import MessageExt

BATCH_ROWS = 4096


class ReadySource(DataSource):
    """`rows` rows with bodies of `body` bytes in `parts` partitions."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return columns.ddl(columns.DEFAULT)

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return ReadyReader(
            int(self.options["rows"]), int(self.options["body"]), int(self.options["parts"])
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return ReadyStreamReader(int(self.options["rows"]), int(self.options["body"]))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, body: int, parts: int) -> None:
        self._rows, self._body, self._parts = rows, body, parts

    def partitions(self) -> list[InputPartition]:
        cuts = [self._rows * at // self._parts for at in range(self._parts + 1)]
        return [InputPartition(b - a) for a, b in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left, batch = partition.value, ready_batch(min(partition.value, BATCH_ROWS), self._body)
        while left:
            part = batch.slice(0, min(left, BATCH_ROWS))
            yield part
            left -= part.num_rows


class ReadyStreamReader(DataSourceStreamReader):
    """Has a batch of `rows` rows whenever it is asked."""

    def __init__(self, rows: int, body: int) -> None:
        self._rows, self._body = rows, body

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> object:  # noqa: N802 - Spark's name
        del limit
        return {"at": (start or {"at": 0})["at"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        del start, end
        return [InputPartition(self._rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield ready_batch(partition.value, self._body)


class ClockedSource(DataSource):
    """Rows without content, `rate` a second from `began` (s) on, `rows` in all.

    A task writes to the file `noted`, in milliseconds, how long ago each of its rows was due.
    """

    @classmethod
    def name(cls) -> str:
        return "clocked"

    def schema(self) -> str:
        return "problem string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        given = self.options
        return ClockedReader(
            given["noted"], float(given["began"]), int(given["rate"]), int(given["rows"])
        )


class ClockedReader(DataSourceStreamReader):
    def __init__(self, noted: str, began: float, rate: int, rows: int) -> None:
        self._noted, self._began, self._rate, self._rows = noted, began, rate, rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> object:  # noqa: N802 - Spark's name
        del limit
        at = (start or {"at": 0})["at"]
        left_s = self._due(at) - time.time()
        time.sleep(min(max(left_s, 0), 1) if at < self._rows else 0.1)
        due = int((time.time() - self._began) * self._rate)
        return {"at": max(at, min(due, self._rows))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        ranges = (start["at"], end["at"])
        return [InputPartition(ranges)] if ranges[0] < ranges[1] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers, now_s = range(*partition.value), time.time()
        with Path(self._noted).open("a", encoding="ascii") as noted:
            noted.writelines(f"{(now_s - self._due(one)) * 1e3:.2f}\n" for one in numbers)
        yield pa.RecordBatch.from_pydict({"problem": pa.nulls(len(numbers), pa.string())})

    def _due(self, number: int) -> float:
        return self._began + (number + 1) / self._rate


def ready_batch(rows: int, size: int) -> pa.RecordBatch:
    """A batch as the source makes them."""
    now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", tz="UTC"))
    of = {
        "topic": pa.repeat("SparkRead", rows),
        "broker": pa.repeat("broker-a", rows),
        "queue_id": pa.array(range(rows), pa.int32()),
        "queue_offset": pa.array(range(rows), pa.int64()),
        "msg_id": pa.array([f"7F00000100002A9F0000{at:012X}" for at in range(rows)]),
        "keys": pa.array([f"k{at}" for at in range(100_000, 100_000 + rows)]),
        "tags": pa.repeat("A", rows),
        "body": pa.array([b"x" * size] * rows, pa.binary()),
        "born_ts": pa.repeat(now, rows),
        "store_ts": pa.repeat(now, rows),
        "reconsume_times": pa.array([0] * rows, pa.int32()),
    }
    names = columns.DEFAULT
    return pa.RecordBatch.from_arrays(
        [of[name] for name in names], schema=columns.arrow_schema(names)
    )


class CountingSource(DataSource):
    """A sink that sends nothing."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite
        return CountingWriter()


class CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(len(body) for batch in iterator for body in batch.column("body").to_pylist())
        return WriterCommitMessage()


def does_nothing(messages: list[MessageExt]) -> None:
    """A handler, in a module that workers import."""


class NotedDelay:
    """A handler that writes down, in milliseconds, how long ago each message was sent.

    It opens its file once in a process, as the queries beside it do once a batch.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, messages: list[MessageExt]) -> None:
        now_ns = time.time_ns()
        lines = "".join(f"{(now_ns - int(one.body)) / 1e6:.2f}\n" for one in messages)
        os.write(self._file, lines.encode())

    @cached_property
    def _file(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND)


class NotedRows:
    """What a query does with each row when it does nothing but write down that delay."""

    SCHEMA = "rows bigint"

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bodies, now_ns = batch.column("body").to_pylist(), time.time_ns()
            with Path(self._path).open("a", encoding="ascii") as noted:
                noted.writelines(f"{(now_ns - int(body)) / 1e6:.2f}\n" for body in bodies)
            yield pa.RecordBatch.from_pydict({"rows": [len(bodies)]})
