"""Reads a range of one queue: windows of offsets, several pulls in flight, answers in order.

Estimates how many messages one pull brings, divides the range into windows of that size, and knows
what each response code means for a reader that must get exactly `begin <= queue_offset < end`.
Does not know what is inside a record (`arrow_batches`), Spark, or Arrow.
Invariant: the records of a range come in the order of their offsets and hold each message once,
however often brokers restart; an offset that is gone raises DataLoss, or is logged and skipped with
failOnDataLoss=false; one that never comes back (damage, a topic that its broker compacts) is logged
and skipped. Answers that are buffered are bounded in number and, but for two of them, in
bytes.
Java: PullAPIWrapper, DefaultMQPullConsumer.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from cometmq.errors import (
    BrokerAway,
    BrokerError,
    CertificateRefused,
    CometError,
    DataLoss,
    MessagesDeleted,
    QueueShrank,
    RemotingError,
    RouteNotFound,
)
from cometmq.spark.source.arrow_batches import BatchBuilder, PulledRecords
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.offset_planning import BEGIN_ANEW, OffsetRange
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)
from cometmq.wire.headers.pull import (
    SUBSCRIPTION,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from cometmq.model.queue import MessageQueue
    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.source.cluster_client import ClusterClient
    from cometmq.spark.source.retries import RetryDeadline
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.wire.command import Command

PULLS_IN_FLIGHT_MAX = 16
"""Most pulls in flight; new ones are sent when half of them are answered, in one write."""
_BYTES_IN_FLIGHT = 8 * 1024 * 1024
_PULL_SIZE_MAX = 1024
_COUNT_LIMIT = 32
"""An answer with more messages was cut by its bytes, so the next ones vary: leave some room."""
_FULL_BEFORE_GROWTH = 16
_NO_FILTER = ("*", "")
_REMOVED = "MESSAGE_WAS_REMOVING"
"""The remark of an answer that passes over messages because they are gone."""
_OFFSET_AT, _offset_of = 20, Struct(">q").unpack_from
"""Where a stored record has its queue offset."""

_log = logging.getLogger("cometmq.spark")


def read_batches(options: SourceOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, one range after the other, as Arrow batches."""
    cluster = cluster_client_of(options)
    builder = BatchBuilder(
        options.columns,
        options.tags,
        unfiltered=options.retry_topic,
        fail_on_damage=options.fail_on_data_loss,
        check_gaps=partial(_check_gaps, cluster),
    )
    for one in ranges:
        for chunk in pull_range(cluster, one):
            if builder.add(chunk):
                yield from builder.batches()
    yield from builder.batches()


def _check_gaps(cluster: ClusterClient, queue: MessageQueue, gaps: Sequence[range]) -> None:
    """Look why offsets are missing between messages of one answer, where no filter is the cause.

    The first gap is read again: if retention has deleted it, that raises MessagesDeleted or is
    logged. Others stay without a reader's help: damage, and topics that a broker compacts.
    """
    if cluster.options.filter_of(queue.topic) != _NO_FILTER:
        return
    found = BatchBuilder(("queue_offset",))
    for chunk in pull_range(cluster, OffsetRange(queue, gaps[0].start, gaps[0].stop)):
        found.add(chunk)
    if any(batch.num_rows for batch in found.batches()):
        raise BrokerAway(
            f"broker {queue.broker_name} left out messages from {gaps[0].start} of queue {queue}, "
            "and returns them now; read them again",
            [queue.broker_name],
        )
    if len(gaps) > 1:
        _log.warning(
            "queue %s has no readable message at %d offsets in %d gaps from %d up to %d: the log "
            "of its broker says why",
            queue, sum(map(len, gaps)), len(gaps), gaps[0].start, gaps[-1].stop,
        )  # fmt: skip


def pull_range(cluster: ClusterClient, one: OffsetRange) -> Iterator[PulledRecords]:
    """All messages of the range that the options let through, in order, as stored records.

    After a temporary error it reconnects and goes on. After `retryForMs` without progress it raises
    the last error.
    """
    retry_deadline = cluster.retry_deadline()
    rest = one
    while rest.begin < rest.end:
        try:
            pulls = _Pulls(cluster.channel(rest.queue), cluster.options, rest)
            for data, end, after in pulls:
                retry_deadline.reset()
                rest = rest._replace(begin=after)
                if data:
                    yield PulledRecords(rest.queue, end, data, after)
        except QueueShrank as error:
            cluster.reset()
            if not _waits(retry_deadline, error, cluster.options):
                return
        except (RemotingError, BrokerError, RouteNotFound, BrokerAway) as error:
            cluster.reset()
            if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                return _report_deleted(rest, cluster.options)
            _wait_for_broker(retry_deadline, error, rest.queue)


def _report_deleted(rest: OffsetRange, options: SourceOptions) -> None:
    """Raise DataLoss; with failOnDataLoss=false log what is left out."""
    sentence = (
        f"broker {rest.queue.broker_name} no longer has queue {rest.queue}, whose messages from "
        f"{rest.begin} up to {rest.end} were planned: the topic was deleted"
    )
    if options.fail_on_data_loss:
        raise DataLoss(f"{sentence}; {BEGIN_ANEW}, or set failOnDataLoss=false to go on without it")
    _log.warning("%s; failOnDataLoss=false, they are left out", sentence)


def _wait_for_broker(retry_deadline: RetryDeadline, error: CometError, queue: MessageQueue) -> None:
    """Wait for the broker; when the time is over raise an error that names broker and queue."""
    try:
        retry_deadline.wait_or_raise(error)
    except CertificateRefused:
        raise
    except (RemotingError, BrokerAway) as last:
        raise BrokerAway(
            f"broker {queue.broker_name} is away and queue {queue} cannot be read ({last}); start "
            "it, or wait longer with the option retryForMs",
            [queue.broker_name],
        ) from last


def _waits(retry_deadline: RetryDeadline, error: QueueShrank, options: SourceOptions) -> bool:
    """Wait for the queue to grow; False if it did not, with failOnDataLoss=false."""
    try:
        retry_deadline.wait_or_raise(error)
    except QueueShrank:
        if options.fail_on_data_loss:
            raise
        _log.warning("%s; failOnDataLoss=false, the rest is left out", error)
        return False
    return True


@dataclass(slots=True)
class _Window:
    at: int
    end: int
    opaque: int = 0


class _Pulls:
    """The pulls of one range over one connection."""

    def __init__(self, channel: BlockingChannel, options: SourceOptions, one: OffsetRange) -> None:
        self._channel = channel
        self._options = options
        self._filter = options.filter_of(one.queue.topic)
        self._range = one
        self._next = one.begin
        self._windows: deque[_Window] = deque()
        self._windows_max = 1  # the first answer says how much this broker returns
        self._pull_size = _PULL_SIZE_MAX
        self._full = 0

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield records, the offset they end before, and the offset to go on with."""
        try:
            while self._fill():
                yield self._step(self._windows[0])
        finally:  # a consumer that stops early leaves pulls unanswered
            for window in self._windows:
                self._channel.forget(window.opaque)

    def _step(self, window: _Window) -> tuple[bytes, int, int]:
        """Take the oldest answer; pull again what it did not cover of its window."""
        answer = self._channel.wait(window.opaque)
        data, after = self._check_answer(window, answer)
        self._adapt_pull_size(window, after)
        in_flight = _BYTES_IN_FLIGHT // max(len(data), 1)
        self._windows_max = min(max(in_flight, 2), PULLS_IN_FLIGHT_MAX)
        end = window.end
        window.at = min(after, end)
        if window.at < end < self._next:
            self._post(window)
        else:  # what the newest window lacks is divided anew
            self._next = window.at if window.at < end else self._next
            self._windows.popleft()
        return data, end, window.at

    def _fill(self) -> bool:
        """Open windows when half of the pulls may be sent; False when the range is done."""
        if len(self._windows) <= self._windows_max // 2 and self._next < self._range.end:
            fresh: list[_Window] = []
            while (
                self._next < self._range.end and len(self._windows) + len(fresh) < self._windows_max
            ):
                end = min(self._next + self._pull_size, self._range.end)
                fresh.append(_Window(self._next, end))
                self._next = end
            self._post(*fresh)
            self._windows += fresh
        return bool(self._windows)

    def _post(self, *windows: _Window) -> None:
        """Send pulls for the rest of these windows, in one write."""
        headers = [self._header(window.at, window.end) for window in windows]
        opaques = self._channel.post_all(RequestCode.PULL_MESSAGE, headers)
        for window, opaque in zip(windows, opaques, strict=True):
            window.opaque = opaque

    def _header(self, at: int, end: int) -> PullMessageRequestHeader:
        tags, sql = self._filter
        return PullMessageRequestHeader(
            consumer_group=self._options.group,
            topic=self._range.queue.topic,
            queue_id=self._range.queue.queue_id,
            queue_offset=at,
            max_msg_nums=end - at,
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription=sql or tags,
            sub_version=0,
            expression_type="SQL92" if sql else "TAG",
            is_large=True,
        )

    def _adapt_pull_size(self, window: _Window, after: int) -> None:
        """Adapt to what the broker returns: a window should be about one pull."""
        asked, got = window.end - window.at, after - window.at
        if got < asked:
            self._pull_size = max(got if got <= _COUNT_LIMIT else got - got // 16, 1)
            self._full = 0
        elif got > asked:  # the filter matched little, so the broker scanned further
            self._pull_size = min(max(self._pull_size, got), _PULL_SIZE_MAX)
        elif asked == self._pull_size:
            self._full += 1
            if self._full >= _FULL_BEFORE_GROWTH:
                self._pull_size, self._full = min(self._pull_size * 2, _PULL_SIZE_MAX), 0

    def _check_answer(self, window: _Window, answer: Command) -> tuple[bytes, int]:
        """The records of an answer and the offset after them."""
        code = answer.code
        if code not in _UNDERSTOOD:
            raise BrokerError(code, answer.remark, self._channel.addr)
        header = PullMessageResponseHeader.decode(answer.ext)
        if code in _PASSES and header.next_begin_offset > window.at:
            self._check_passed(window.at, answer, header)
            return answer.body, header.next_begin_offset
        if header.max_offset <= window.at:
            raise QueueShrank(
                f"{self._queue()} ends at {header.max_offset}, but messages up to "
                f"{self._range.end} were planned: its broker lost messages or the topic was "
                f"recreated; {BEGIN_ANEW}, or set failOnDataLoss=false to skip them"
            )
        return b"", self._skip(window.at, max(header.min_offset, header.next_begin_offset))

    def _check_passed(self, at: int, answer: Command, header: PullMessageResponseHeader) -> None:
        """Look why an answer begins behind its offset, where no filter can be the cause.

        A broker passes over what retention has deleted until its index shows that, which takes
        Apache's ten seconds; and over what it cannot read.
        """
        if self._filter != _NO_FILTER and (answer.body or answer.remark != _REMOVED):
            return
        after = header.next_begin_offset
        if answer.body:  # which may be too short for a record: whoever decodes it says so
            is_whole = len(answer.body) >= _OFFSET_AT + 8
            (first,) = _offset_of(answer.body, _OFFSET_AT) if is_whole else (at,)
            after = min(first, after)
        if after <= at:
            return
        if header.min_offset > at or self._has_lost_its_first_message():
            self._skip(at, after)
            return
        _log.warning(
            "%s has no readable message from %d up to %d: the log of its broker says why",
            self._queue(),
            at,
            after,
        )

    def _has_lost_its_first_message(self) -> bool:
        """Whether the broker cannot say when the first message of the queue was stored."""
        queue = self._range.queue
        asked = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self._channel.call(RequestCode.GET_EARLIEST_MSG_STORETIME, asked)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, self._channel.addr)
        return GetEarliestMsgStoretimeResponseHeader.decode(answer.ext).timestamp < 0

    def _skip(self, at: int, after: int) -> int:
        """Skip a gap if that is allowed; return the offset after it."""
        if after <= at:
            raise BrokerError(
                ResponseCode.SYSTEM_BUSY, f"{self._queue()} returns nothing at {at}", "the broker"
            )
        sentence = (
            f"{self._queue()} no longer holds the messages from {at} up to {after}: "
            "the broker has deleted them"
        )
        if self._options.fail_on_data_loss:
            raise MessagesDeleted(
                f"{sentence}; keep messages longer than Spark needs to read them, "
                "or set failOnDataLoss=false to go on without them"
            )
        _log.warning("%s; failOnDataLoss=false, reading goes on at %d", sentence, after)
        return after

    def _queue(self) -> str:
        return f"queue {self._range.queue}"


_PASSES = frozenset({ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY})
"""Answers that take the reader on, with or without messages."""
_UNDERSTOOD = frozenset(
    {
        *_PASSES,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
