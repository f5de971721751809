"""Which broker of a name a reader should ask next, and what a slave says instead of "moved".

A master with slaveReadEnable sends those who are far behind to a slave, so that old messages do not
push fresh ones out of its memory. A slave sends readers back once they are near the end and its
master is followed; while it is not, they stay. A slave never corrects an offset: its log may begin
later than its master's or end earlier, and a correction would skip messages, or repeat them.
Java: PullMessageProcessor.composeResponseHeader, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.pulls.pull_response import response_code
from cometmq.model.route import MASTER_ID
from cometmq.store.get_result import GetStatus
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.store.get_result import GetResult
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.headers.pull import PullMessageRequestHeader

_READ = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE})
"""Who has reached the end of its queue is not behind, however much the log has of other topics."""


class AdvisedAnswer(NamedTuple):
    """The code of a pull's answer, its content, and the broker id to ask next."""

    code: ResponseCode
    got: GetResult
    broker_id: int


class ReadAdviser:
    """Advice of one broker to its readers. Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        fresh_bytes: int,
        broker_id: int,
        is_master_followed: Callable[[], bool] | None,
    ) -> None:
        """`fresh_bytes`: who lacks more of the log is far behind.

        `is_master_followed`: whether a slave copies its master now; None on a master.
        """
        self._store = store
        self._cached = store.cold_reader.cached
        self._fresh_bytes = fresh_bytes
        self._broker_id = broker_id
        self._is_master_followed = is_master_followed

    def code(self, got: GetResult, queue_offset: int) -> ResponseCode:
        """The code that answers a read from this offset, were it answered now."""
        code = response_code(got, queue_offset)
        if self._is_master_followed is None or code is not ResponseCode.PULL_OFFSET_MOVED:
            return code
        # with the master at hand the reader goes there; else it waits for what may still come
        if self._is_master_followed():
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return ResponseCode.PULL_NOT_FOUND

    def answer(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig, got: GetResult
    ) -> AdvisedAnswer:
        """What to answer to a read."""
        code = self.code(got, header.queue_offset)
        is_followed = self._is_master_followed
        is_behind = got.status in _READ and self._is_far_behind(header, got.next_offset)
        if is_followed is None:
            slow, usual = group.which_broker_when_consume_slowly, group.broker_id
            return AdvisedAnswer(code, got, slow if is_behind else usual)
        if response_code(got, header.queue_offset) is ResponseCode.PULL_OFFSET_MOVED:
            got = got._replace(next_offset=header.queue_offset)
        elif is_behind:
            return AdvisedAnswer(code, got, self._broker_id)
        if not is_followed():
            return AdvisedAnswer(code, got, self._broker_id)
        if got.status is not GetStatus.FOUND:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return AdvisedAnswer(code, got, MASTER_ID)

    def _is_far_behind(self, header: PullMessageRequestHeader, next_offset: int) -> bool:
        try:
            entry = self._cached.entry(header.topic, header.queue_id, next_offset - 1)
        except NotInMemory:
            return True
        return entry is not None and self._store.max_phy_offset - entry[0] > self._fresh_bytes
