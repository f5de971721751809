"""Runs a micro-batch: in each task the engine, on the driver one action that collects problems.

Owns the way of outcomes from tasks to the driver. Invariant: a batch whose messages were not all
handled raises on the driver, after every task has ended, so that Spark replays the batch at the
next start and does not run a task again meanwhile.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from cometmq.errors import BatchNotHandled, CometError
from cometmq.spark.handling.batch_engine import BatchEngine
from cometmq.spark.handling.record_messages import queue_runs
from cometmq.spark.handling.worker_client import worker_client_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from cometmq.spark.handling.handler_settings import HandlerJob
    from cometmq.spark.handling.worker_client import WorkerClient

_ROWS_MAX = 10_000
"""Rows of outcomes in one Arrow batch."""


@dataclass(frozen=True, slots=True)
class OutcomeCheck:
    """What Spark calls on the driver for each micro-batch, with the problems of its tasks."""

    topic: str

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Run the tasks; raises BatchNotHandled."""
        problems = sorted(set(_problems(frame)))
        if problems:
            raise BatchNotHandled(
                f"batch {batch_id} of the handlers of {self.topic} is not finished, and "
                f"comes again when the query is started again: {'; '.join(problems)}"
            )


def _problems(frame: DataFrame) -> list[str]:
    """Run the tasks, once, and bring their problems to the driver.

    The rows that Spark has planned are collected by themselves: `frame.collect()` plans them anew
    and sends them by a socket, which makes a micro-batch 11 ms longer (decision 027). Rows may be
    one object that Spark fills anew, which does no harm: a task has one problem at most. Spark
    Connect has no such way.
    """
    planned = getattr(frame, "_jdf", None)
    if planned is None:
        return [row.problem for row in frame.collect()]
    rows = planned.queryExecution().logical().rdd().collect()
    return [row.getString(0) for row in rows]


def outcomes(job: HandlerJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Handle the messages of one task, and say what became of them, as `job_option` has it."""
    import pyarrow as pa

    count, problem = handle(job, batches)
    schema = pa.schema([("problem", pa.string())])
    while count > 0:
        rows = min(count, _ROWS_MAX)
        count -= rows
        yield pa.RecordBatch.from_arrays([pa.nulls(rows, pa.string())], schema=schema)
    if problem is not None:
        yield pa.RecordBatch.from_pydict({"problem": [problem]}, schema)


def handle(job: HandlerJob, batches: Iterable[pa.RecordBatch]) -> tuple[int, str | None]:
    """Handle the messages of one task; how many there were, and why they are not finished."""
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return 0, None
    worker = worker_client_of(job)
    if not worker.options.is_by_key:  # only the journal of key lanes is kept in files
        return _handle(worker, first, batches, None)
    with tempfile.TemporaryDirectory(prefix="cometmq-") as state_dir:
        return _handle(worker, first, batches, state_dir)


def _handle(
    worker: WorkerClient,
    first: pa.RecordBatch,
    others: Iterator[pa.RecordBatch],
    state_dir: str | None,
) -> tuple[int, str | None]:
    loop_thread = worker.loop_thread
    engine = loop_thread.run(lambda: BatchEngine(worker, state_dir))
    try:
        for batch in chain((first,), others):
            for queue, messages, has_unreadable in queue_runs(
                batch, worker.options.inflated_bytes_max
            ):
                loop_thread.call(engine.add(queue, messages, has_unreadable=has_unreadable))
        loop_thread.call(engine.finish())
    except CometError as error:
        return engine.taken, str(error)
    finally:
        loop_thread.call(engine.close())
    return engine.taken, None
