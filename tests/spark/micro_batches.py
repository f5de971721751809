"""A micro-batch engine in this process: the source's reader, the tasks' handlers, a checkpoint.

It calls what Spark calls, in Spark's order, and nothing else, so that many plans can be run without
a Java machine; `test_spark_handlers.py` has the same with Spark itself.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from cometmq.spark.handling import job_option
from cometmq.spark.handling import listen as listens
from cometmq.spark.handling.batch_runner import handle
from cometmq.spark.handling.handling_reader import HandlingReader
from cometmq.spark.handling.worker_client import forget_worker_clients
from cometmq.spark.source import source_options
from cometmq.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spark.live import Live


_here: list[Callable[..., Any]] = []


def _found(number: int) -> Callable[..., Any]:
    return _here[number]


class Here:
    """A handler that is pickled by its place in this process, and so remains itself."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.number = len(_here)
        _here.append(handler)

    def __call__(self, messages: list[Any]) -> None:
        raise AssertionError("it is called once it was unpickled")

    def __reduce__(self) -> tuple[Callable[[int], Callable[..., Any]], tuple[int]]:
        return _found, (self.number,)


class NotReported(Exception):
    """A batch whose outcome was lost, for the reason that is named."""


UNNOTED, AMID = "before the batch is noted", "amid its messages"
"""When processes may die: the driver once all is handled; a worker once half of it is."""


class MicroBatches:
    """A query that can be started again and again; its checkpoint is two offsets."""

    def __init__(
        self,
        live: Live,
        group: str,
        topic: str,
        handler: Callable[..., Any],
        wait_most_s: float = 60.0,
        **settings: Any,
    ) -> None:
        self._given = (live, group, topic, handler, wait_most_s, settings)
        self._done: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self.batches = 0
        self.start()

    def start(self, handler: Callable[..., Any] | None = None, **changed: Any) -> None:
        """Start it, with new processes; what was planned and not done is replayed."""
        live, group, topic, known, wait_most_s, settings = self._given
        handler, settings = handler or known, {**settings, **changed}
        self._given = (live, group, topic, handler, wait_most_s, settings)
        forget_worker_clients()
        self.job, read = listens.prepare(
            group,
            topic,
            "*",
            handler,
            {"idleWaitMs": "0"},
            wait_most_s,
            namesrv=live.namesrv,
            **settings,
        )
        given = {**read, "slots": "2", job_option.OPTION: job_option.text_of(self.job)}
        job, options = job_option.take_job(given)
        assert job is not None
        self.reader = HandlingReader(source_options.parse(options), job)
        if self._done is None:
            self._done = self.reader.initialOffset()

    def run_batch(self, dies: str = "") -> bool:
        """Run the next batch, or the last one again; whether there was one.

        With `dies` raise NotReported where that is.
        """
        assert self._done is not None
        end = self._planned
        if end is None:
            end = self.reader.latestOffset(self._done, self.reader.getDefaultReadLimit())
        if end == self._done:
            return False
        self._planned = end
        self.batches += 1
        problems = []
        for part in self.reader.partitions(self._done, end):
            if dies == AMID:
                handle(self.job, _first_half(StreamReader.read(self.reader, part)))
            else:
                rows = [row for batch in self.reader.read(part) for row in batch.to_pylist()]
                assert all(row.keys() == {"problem"} for row in rows)
                problems += [row["problem"] for row in rows if row["problem"] is not None]
        assert not problems, problems
        if dies:
            raise NotReported(dies)
        self._done, self._planned = end, None
        return True


def _first_half(batches: Iterable[Any]) -> Iterable[Any]:
    for batch in islice(batches, 1):
        yield batch.slice(0, (batch.num_rows + 1) // 2)
