"""Reading a range of one queue: windows of offsets, several pulls under way, answers in order.

Owns: the guess of how many messages one pull brings, the windows made of it, and what each answer
code means for a reader that must get exactly `lo <= queue_offset < hi`.
Refuses to know: what is inside a record (`rows`), Spark, Arrow.
Invariant: the chunks of a range come in the order of their offsets and together hold each message
once, however often brokers restart meanwhile; an offset that is gone raises DataLoss, or is
reported and skipped when the user said so. At most `LANES` answers are held.
Java: PullAPIWrapper, DefaultMQPullConsumer.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, DataLoss, QueueShrank, RemotingError, RouteNotFound
from cometmq.spark.arrow_batches import Chunk
from cometmq.spark.offset_planning import key_of
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import (
    SUBSCRIPTION,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.cluster_client import Cluster, Patience
    from cometmq.spark.offset_planning import Range
    from cometmq.spark.options import SourceOptions
    from cometmq.wire.command import Command

LANES = 16
"""How many pulls may be under way at once; they are asked for by the half of it, in one write."""
_ASK_MIN, _ASK_MAX = 32, 1024
_FULL_BEFORE_GROWTH = 16

_log = logging.getLogger("cometmq.spark")


def chunks_of(cluster: Cluster, one: Range) -> Iterator[Chunk]:
    """All messages of the range that the options let through, in order, as stored records.

    Reconnects and goes on after errors that may heal, for as long as `retryForMs` says without
    any progress; raises the last error then.
    """
    patience = cluster.patience()
    rest = one
    while rest.lo < rest.hi:
        try:
            pulls = _Pulls(cluster.channel(rest.broker), cluster.options, rest)
            for data, hi, after in pulls:
                patience.progress()
                rest = rest._replace(lo=after)
                if data:
                    yield Chunk(rest.broker, hi, data)
        except QueueShrank as error:
            cluster.reset()
            if not _waits(patience, error, cluster.options):
                return
        except (RemotingError, BrokerError, RouteNotFound) as error:
            cluster.reset()
            patience.pause_or_raise(error)


def _waits(patience: Patience, error: QueueShrank, options: SourceOptions) -> bool:
    """Wait for the queue to grow; False when it did not and may be left as it is."""
    try:
        patience.pause_or_raise(error)
    except QueueShrank:
        if options.fail_on_data_loss:
            raise
        _log.warning("%s; failOnDataLoss=false, the rest is left out", error)
        return False
    return True


@dataclass(slots=True)
class _Window:
    at: int
    hi: int
    opaque: int = 0


class _Pulls:
    """The pulls of one range over one connection."""

    def __init__(self, channel: BlockingChannel, options: SourceOptions, one: Range) -> None:
        self._channel, self._options, self._range = channel, options, one
        self._next = one.lo
        self._windows: deque[_Window] = deque()
        self._ask = _ASK_MIN
        self._full = 0

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield records, the offset they end before, and the offset to go on with."""
        try:
            while self._fill():
                yield self._step(self._windows[0])
        finally:  # whoever stops early leaves answers behind
            for window in self._windows:
                self._channel.forget(window.opaque)

    def _step(self, window: _Window) -> tuple[bytes, int, int]:
        """Take the oldest answer; ask again for what it left out of its window."""
        answer = self._channel.wait(window.opaque)
        data, after = self._judge(window, answer)
        self._learn(window, after)
        window.at = min(after, window.hi)
        if window.at < window.hi:
            self._post(window)
        else:
            self._windows.popleft()
        return data, window.hi, window.at

    def _fill(self) -> bool:
        """Open windows when half of the lanes are free; False when the range is done."""
        if len(self._windows) <= LANES // 2 and self._next < self._range.hi:
            fresh: list[_Window] = []
            while self._next < self._range.hi and len(self._windows) + len(fresh) < LANES:
                hi = min(self._next + self._ask, self._range.hi)
                fresh.append(_Window(self._next, hi))
                self._next = hi
            self._post(*fresh)
            self._windows += fresh
        return bool(self._windows)

    def _post(self, *windows: _Window) -> None:
        """Ask for what these windows still lack, in one write."""
        headers = [self._header(window.at, window.hi) for window in windows]
        opaques = self._channel.post_all(RequestCode.PULL_MESSAGE, headers)
        for window, opaque in zip(windows, opaques, strict=True):
            window.opaque = opaque

    def _header(self, at: int, hi: int) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self._options.group,
            topic=self._options.topic,
            queue_id=self._range.queue_id,
            queue_offset=at,
            max_msg_nums=hi - at,
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription=self._options.tags,
            sub_version=0,
            expression_type="TAG",
        )

    def _learn(self, window: _Window, after: int) -> None:
        """Follow what the broker is willing to give: a window should be about one pull."""
        asked, got = window.hi - window.at, after - window.at
        if got < asked:
            self._ask, self._full = max(got, 1), 0
        elif got > asked:  # a filter let little through, the broker looked further
            self._ask = min(max(self._ask, got), _ASK_MAX)
        elif asked == self._ask:
            self._full += 1
            if self._full >= _FULL_BEFORE_GROWTH:
                self._ask, self._full = min(self._ask * 2, _ASK_MAX), 0

    def _judge(self, window: _Window, answer: Command) -> tuple[bytes, int]:
        """The records of an answer and the offset after them."""
        code = answer.code
        if code not in _UNDERSTOOD:
            raise BrokerError(code, answer.remark, self._channel.addr)
        header = PullMessageResponseHeader.decode(answer.ext)
        if code == ResponseCode.SUCCESS and header.next_begin_offset > window.at:
            return answer.body, header.next_begin_offset
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY and header.next_begin_offset > window.at:
            return b"", header.next_begin_offset
        if header.max_offset <= window.at:
            raise QueueShrank(
                f"{self._queue()} ends at {header.max_offset}, but messages up to "
                f"{self._range.hi} were promised: its broker lost messages or the topic was made "
                "anew; start with a new checkpoint, or set failOnDataLoss=false to go on without"
            )
        return b"", self._skip(window.at, max(header.min_offset, header.next_begin_offset))

    def _skip(self, at: int, after: int) -> int:
        """Go over a gap if that is allowed; the offset after it."""
        if after <= at:
            raise BrokerError(
                ResponseCode.SYSTEM_BUSY, f"{self._queue()} gives nothing at {at}", "the broker"
            )
        sentence = (
            f"{self._queue()} no longer holds the messages from {at} up to {after}: "
            "the broker has deleted them"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{sentence}; keep messages longer than Spark needs to read them, "
                "or set failOnDataLoss=false to go on without them"
            )
        _log.warning("%s; failOnDataLoss=false, reading goes on at %d", sentence, after)
        return after

    def _queue(self) -> str:
        key = key_of(self._range.broker, self._range.queue_id)
        return f"queue {key} of topic {self._options.topic}"


_UNDERSTOOD = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
