"""A streaming query for tests, and texts of messages and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 60


class Stream:
    """A query over a topic with a checkpoint of its own; it can be started again and again."""

    def __init__(self, spark: SparkSession, options: dict[str, str], root: Path) -> None:
        self._spark, self.options = spark, options
        self._checkpoint = str(root / "checkpoint")
        self.batches: list[tuple[int, list[str]]] = []
        self.on_batch: Callable[[int], None] = lambda batch: None

    def run(self, *, once: bool = True, **more: str) -> StreamingQuery:
        """Start it; with `once` let it take what is available, and end."""
        frame = self._spark.readStream.format("rocketmq").options(**{**self.options, **more})
        writer = frame.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if not once:
            return writer.start()
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        return query

    def _take(self, frame: DataFrame, batch: int) -> None:
        table = frame.select("body").toArrow()
        self.batches.append((batch, [body.as_py().decode() for body in table["body"]]))
        self.on_batch(batch)

    @property
    def bodies(self) -> list[str]:
        return [body for _, bodies in self.batches for body in bodies]


def texts(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in range(*numbers)]


def said(error: pytest.ExceptionInfo[PySparkException]) -> str:
    return " ".join(str(error.value).split())
