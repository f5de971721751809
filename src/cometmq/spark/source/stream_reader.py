"""The stream reader: Spark's hooks, each a few lines over planning and pulling.

The planner process asks for offsets and partitions; the task processes read. Only partitions carry
values from one to the other.
Invariant: a reader holds plain values only, because it is pickled; Spark's checkpoint alone says
how far a query is; an end is planned only when every queue that the checkpoint knows was asked.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cometmq.errors import CometError, DataLoss, QueueShrank, SettingsError
from cometmq.spark.source import planned_offsets
from cometmq.spark.source.bound_resolution import known_queues, resolve
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.message_sizes import message_bytes
from cometmq.spark.source.offset_bounds import LATEST
from cometmq.spark.source.offset_planning import (
    BatchLimits,
    newest_store_ms,
    plan_end,
    shrunk_queues,
    waiting_messages,
)
from cometmq.spark.source.partition_packing import partitions_of
from cometmq.spark.source.planned_offsets import PlannedOffsets
from cometmq.spark.source.pull import read_batches
from cometmq.spark.source.recreated_queues import checked_ranges, recreated_queues
from cometmq.spark.source.worker_heap import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.cluster_client import ClusterClient
    from cometmq.spark.source.planned_offsets import QueueOffsets
    from cometmq.spark.source.queue_positions import Positions
    from cometmq.spark.source.source_options import SourceOptions

_POLL_MIN_S, _POLL_MAX_S = 0.02, 0.05
_WAIT_FOR_MORE_S = 0.2
"""Spark asks again at once, and each time the brokers are asked."""
_TRUSTED_S = 5.0
"""An idle query asks for all positions after this time, though no message came: for queues that
are new, gone or made anew."""

_log = logging.getLogger("cometmq.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream over topics; only Spark's checkpoint says how far it got."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._first: PlannedOffsets | None = None
        self._target: Positions | None = None
        self._latest: PlannedOffsets | None = None
        self._planned_at_s: float | None = None
        self._idle_at: dict[str, Any] | None = None
        self._idle_until_s = 0.0
        self._committed: QueueOffsets = {}
        self._reported: set[MessageQueue] = set()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts; Spark asks twice, so it is resolved once."""
        return planned_offsets.encode(self._initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of `maxOffsetsPerTrigger`, else of `maxBytesPerTrigger`."""
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run at the latest offsets of now."""
        self._target = self._cluster().positions()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next batch ends, within the limits; waits a moment for new messages."""
        if start is not None and self._is_idle(start):
            return start
        at = self._initial() if start is None else self._decoded(start)
        positions = self._positions_beyond(at)
        self._commit({queue: done for queue, done in at.queues.items() if queue in positions})
        ends = {queue: position.max_offset for queue, position in positions.items()}
        self._latest = PlannedOffsets(ends, newest_store_ms(positions))
        if self._waits_for_more(at, positions):
            time.sleep(min(self._options.idle_wait_ms / 1000, _WAIT_FOR_MORE_S))
            return planned_offsets.encode(at)
        limits, sizes = BatchLimits(), None
        if not isinstance(limit, ReadAllAvailable):
            limits = BatchLimits(
                rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                bytes=self._options.max_bytes or None,
            )
        if limits.bytes is not None:
            waiting = waiting_messages(at.queues, positions)
            sizes = message_bytes(self._cluster(), at.queues, waiting)
        end = plan_end(self._checked_start(at, positions), positions, limits, sizes)
        planned = planned_offsets.encode(end)
        if end is at:
            self._idle_at = planned
        else:
            self._planned_at_s = time.monotonic()
        return planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The latest offsets as last seen; minus `endOffset` they are the lag."""
        return planned_offsets.encode(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions of a batch, from its logged offsets and the options alone."""
        ranges = checked_ranges(self._cluster(), self._decoded(start), self._decoded(end))
        return [InputPartition(part) for part in partitions_of(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        batch = None
        for batch in read_batches(self._options, partition.value):
            yield batch
        if batch is not None:  # a task without messages has not imported what handles them
            freeze_imports()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: this call comes a batch late; `latestOffset` commits what is done."""

    def _cluster(self) -> ClusterClient:
        return cluster_client_of(self._options)

    def _decoded(self, offsets: dict[str, Any]) -> PlannedOffsets:
        """Offsets of the checkpoint; raises SettingsError when they are not of this read."""
        selection = self._options.selection
        try:
            planned = planned_offsets.decode(offsets, selection.only_topic)
        except ValueError as fault:
            raise SettingsError(f"this checkpoint cannot be read on: {fault}") from None
        for queue in planned.queues:
            if not selection.covers(queue):
                raise SettingsError(
                    f"this checkpoint has read queue {queue}, but the query reads {selection}: "
                    "keep the topics that a query has read, or start with a new checkpoint"
                )
        return planned

    def _initial(self) -> PlannedOffsets:
        if self._first is None:
            bound = self._options.starting or LATEST
            positions = self._cluster().positions(known_queues(bound))
            first = resolve(self._cluster(), bound, positions, left_out="earliest")
            newest_ms = bound.last_store_ms or newest_store_ms(positions)
            self._first = PlannedOffsets(first, newest_ms)
        return self._first

    def _is_idle(self, start: dict[str, Any]) -> bool:
        """Whether the last call found nothing here, and nothing has come since nor comes now.

        Brokers hold pulls meanwhile, so that an idle query asks them nothing.
        """
        if start != self._idle_at or time.monotonic() >= self._idle_until_s:
            return False
        return not self._cluster().arrivals.wait(self._options.idle_wait_ms / 1000)

    def _positions_beyond(self, at: PlannedOffsets) -> Positions:
        """The positions now, or those fixed for this run.

        Without fixed ones it waits until a queue is beyond `at` or `idleWaitMs` has passed.
        """
        self._idle_until_s = 0.0
        if self._target is not None:
            if _is_behind(self._target, at.queues):  # it was fixed without knowing the start
                now = self._checked_positions(at)
                self._target |= {queue: now[queue] for queue in at.queues if queue in now}
            self._checked_start(at, self._target)
            return self._target
        arrivals = self._cluster().arrivals
        deadline_s = time.monotonic() + self._options.idle_wait_ms / 1000
        pause_s, was_woken = _POLL_MIN_S, False
        while True:
            asked_s = time.monotonic()
            positions = self._checked_positions(at)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or _has_news(positions, at.queues):
                return positions
            ends = {queue: position.max_offset for queue, position in positions.items()}
            if was_woken or not arrivals.begin(ends):  # woken for nothing, or not to be woken
                time.sleep(min(pause_s, left_s))
                pause_s, was_woken = min(pause_s * 2, _POLL_MAX_S), False
            elif arrivals.wait(left_s):
                was_woken = True
            else:
                self._idle_until_s = asked_s + _TRUSTED_S
                return positions

    def _checked_positions(self, at: PlannedOffsets) -> Positions:
        """The positions now; waits for a queue that shrank to grow again."""
        retry_deadline = self._cluster().retry_deadline()
        while True:
            positions = self._cluster().positions(at.queues)
            try:
                self._checked_start(at, positions)
            except QueueShrank as error:
                self._cluster().reset()
                retry_deadline.wait_or_raise(error)
            else:
                return positions

    def _checked_start(self, at: PlannedOffsets, positions: Positions) -> PlannedOffsets:
        """Where the next batch starts; raises DataLoss when a queue isn't what was read.

        With failOnDataLoss=false that is reported once. A queue that was made anew is left out of
        the result, so that it is planned as any new one: from its first message on.
        """
        cluster = self._cluster()
        anew = recreated_queues(cluster, at, positions)
        asked = {
            queue: offset
            for queue, offset in at.queues.items()
            if queue.broker_name not in cluster.left_out
        }
        lost = shrunk_queues(asked, positions) | anew
        if self._options.fail_on_data_loss:
            if anew:
                raise DataLoss(next(iter(anew.values())))
            if lost:
                raise QueueShrank(next(iter(lost.values())))
        for queue, sentence in lost.items():
            if queue not in self._reported:
                _log.warning("%s; failOnDataLoss=false, the query goes on", sentence)
        self._reported = set(lost)
        if not anew:
            return at
        kept = {queue: offset for queue, offset in at.queues.items() if queue not in anew}
        return PlannedOffsets(kept, at.last_store_ms)

    def _waits_for_more(self, at: PlannedOffsets, positions: Positions) -> bool:
        """Whether `minOffsetsPerTrigger` delays a batch; never the first of a run."""
        if not self._options.min_offsets or self._target is not None or self._planned_at_s is None:
            return False
        waited_s = time.monotonic() - self._planned_at_s
        waiting = sum(waiting_messages(at.queues, positions).values())
        return (
            waiting < self._options.min_offsets
            and waited_s < self._options.max_trigger_delay_ms / 1000
        )

    def _commit(self, done: QueueOffsets) -> None:
        """Tell the brokers how far the query is, for other tools to see; errors are logged.

        Spark asks for the next batch only when the one that ended at `done` is complete.
        """
        if not self._options.commit_offsets:
            return
        moved = {
            queue: offset for queue, offset in done.items() if self._committed.get(queue) != offset
        }
        try:
            self._cluster().commit(moved)
        except CometError as error:
            # a new group comes into being with its first pull
            is_start = self._first is not None and moved.items() <= self._first.queues.items()
            level = logging.DEBUG if is_start else logging.WARNING
            _log.log(level, "offsets of %s were not committed: %s", self._options.group, error)
        else:
            self._committed |= moved


def _has_news(positions: Positions, start: QueueOffsets) -> bool:
    """Whether a queue is new, or has messages beyond the place up to which it was read."""
    return any(position.max_offset > start.get(queue, -1) for queue, position in positions.items())


def _is_behind(positions: Positions, start: QueueOffsets) -> bool:
    """Whether a queue that was read is missing, or ends before the place up to which it was."""
    return any(
        queue not in positions or positions[queue].max_offset < offset
        for queue, offset in start.items()
    )


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Raises an error from the first hooks that Spark calls.

    Spark hides an error of `streamReader` itself behind one of its own.
    """

    def __init__(self, error: SettingsError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        raise self._error

    def partitions(self, *_: object) -> list[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, *_: object) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error
