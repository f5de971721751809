"""Tasks of the sink without Spark: rows come in batches, with something done between them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from cometmq.spark.sink import sink_options
from cometmq.spark.sink.rejected_rows import WrittenBatch
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.writers import SentRows, send_rows
from cometmq.spark.source import source_options
from cometmq.spark.source.batch_reader import BatchReader
from spark.scripted import forget_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STEP = 100


class Task:
    """One task of a write: `count` rows with a sharding key or without."""

    def __init__(self, namesrv: str, topic: str, count: int, *, keys: int = 0) -> None:
        self.namesrv, self.topic, self.count, self.keys = namesrv, topic, count, keys

    def run(
        self, during: Mapping[int, Callable[[], object]] | None = None, **more: str
    ) -> SentRows:
        """Send all rows; calls what stands in `during` for a row before that row is given."""
        options = sink_options.parse(
            {"namesrv": self.namesrv, "topic": self.topic, "maxInFlight": "400", **more}
        )
        names = {"body", "sharding_key"} if self.keys else {"body"}
        columns = RowColumns(frozenset(names), is_read=False)
        batches = self._batches(during or {})
        return send_rows(batches, options, columns, WrittenBatch("query", 4), 1)

    def _batches(self, during: Mapping[int, Callable[[], object]]) -> Iterator[pa.RecordBatch]:
        for first in range(0, self.count, STEP):
            if first in during:
                during[first]()
            rows = range(first, min(first + STEP, self.count))
            columns: dict[str, list[object]] = {"body": [b"%d" % row for row in rows]}
            if self.keys:
                columns["sharding_key"] = [self.key(row) for row in rows]
            yield pa.RecordBatch.from_pydict(columns)

    def key(self, row: int) -> str:
        return f"k{row % self.keys}"

    def stored(self) -> list[int]:
        """The rows as brokers have them, queue by queue in the order of their offsets."""
        forget_clients()  # which brokers there are may have changed
        reader = BatchReader(
            source_options.parse({"namesrv": self.namesrv, "topic": self.topic, "columns": "body"})
        )
        return [
            int(body.as_py())
            for part in reader.partitions()
            for batch in reader.read(part)
            for body in batch.column("body")
        ]

    def check_order(self, stored: list[int]) -> None:
        """Nothing is lost, and rows of a key were stored in order, repeats left out."""
        assert set(stored) == set(range(self.count))
        of_key: defaultdict[str, list[int]] = defaultdict(list)
        for row in dict.fromkeys(stored):
            of_key[self.key(row)].append(row)
        for key, rows in of_key.items():
            assert rows == sorted(rows), f"rows of {key} overtook one another: {rows}"
