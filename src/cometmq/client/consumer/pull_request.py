"""One pull: the request to a broker and the meaning of its response.

Owns the flags of the request and the reading of records; knows nothing of loops, windows and
handlers. Invariant: a result never goes on beyond a record that could not be read.
Java: PullAPIWrapper, MQClientAPIImpl.processPullResponse
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.consumer import message_decoder as decode
from cometmq.errors import BrokerError, ProtocolError, RemotingTimeout
from cometmq.model.results import PullResult, PullStatus
from cometmq.model.subscription import ALL, TAG
from cometmq.model.topic import is_retry_topic
from cometmq.rules.filters.tag_expressions import split_expression
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers import pull as bits
from cometmq.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.selector import MessageSelector
    from cometmq.wire.command import Command

_RESPONSE_GRACE_S = 15.0
_STATUS = {status.value: status for status in PullStatus}


class TopicFilter(NamedTuple):
    """Which messages of a topic are wanted, as a pull says it."""

    expression: str = ALL
    expression_type: str = TAG
    version: int = 0
    tags: frozenset[bytes] = frozenset()
    """The tags to compare again here; empty: all, or the broker alone decides."""


def filter_of(selector: MessageSelector) -> TopicFilter:
    """The filter that a checked selector means."""
    if selector.expression_type != TAG:
        return TopicFilter(*selector)
    tags = split_expression(selector.expression)
    return TopicFilter(" || ".join(tags) or ALL, TAG, tags=frozenset(tag.encode() for tag in tags))


class PullRequest(NamedTuple):
    """One pull of a queue from `offset` on."""

    queue: MessageQueue
    offset: int
    max_count: int
    filter: TopicFilter
    broker_id: int = 0
    suspend_s: float = 0.0
    """How long the broker may wait for a message; 0: not at all."""
    commit_offset: int | None = None
    carries_filter: bool = False
    """Whether the request carries the filter; else the broker knows it from a heartbeat."""
    is_lite: bool = False
    max_bytes: int | None = None
    is_large: bool = False
    """Whether a broker may give more than its transfer limits allow."""
    large_count: int | None = None
    """How many messages such a broker may give instead of `max_count`."""


class PullClient:
    """Pulls for one group. One loop owns it."""

    def __init__(self, session: ClientSession, group: str, inflated_bytes_max: int) -> None:
        """`inflated_bytes_max`: the largest body that is inflated."""
        self._session = session
        self._group = group
        self._inflated_bytes_max = inflated_bytes_max

    async def pull(self, pull: PullRequest) -> PullResult:
        """Ask once and read the response. Raises RemotingError, BrokerError or ProtocolError.

        Closes a connection on which it was never answered: the broker may be gone.
        """
        addr = self._session.routes.read_addr(pull.queue.broker_name, pull.broker_id)
        code = RequestCode.LITE_PULL_MESSAGE if pull.is_lite else RequestCode.PULL_MESSAGE
        command = request(code, 0, self._header(pull))

        def read(response: Command, body: memoryview) -> PullResult:
            return _result(pull, addr, response, body, self._inflated_bytes_max)

        timeout_s = pull.suspend_s + _RESPONSE_GRACE_S
        try:
            return await self._session.fetch(addr, command, timeout_s, read)
        except RemotingTimeout:
            if channel := self._session.pool.open_channel(addr):
                channel.close()
            raise

    def _header(self, pull: PullRequest) -> PullMessageRequestHeader:
        queue, wanted = pull.queue, pull.filter
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=pull.offset,
            max_msg_nums=pull.max_count,
            sys_flag=_flags(pull),
            commit_offset=pull.commit_offset or 0,
            suspend_timeout_ms=int(pull.suspend_s * 1000),
            subscription=wanted.expression if pull.carries_filter else None,
            sub_version=wanted.version,
            expression_type=wanted.expression_type,
            max_msg_bytes=pull.max_bytes,
            broker_name=queue.broker_name,
            is_large=pull.is_large or None,
            large_count=pull.large_count,
        )


def _flags(pull: PullRequest) -> int:
    return (
        (bits.COMMIT_OFFSET if pull.commit_offset else 0)
        | (bits.SUSPEND if pull.suspend_s else 0)
        | (bits.SUBSCRIPTION if pull.carries_filter else 0)
        | (bits.LITE_PULL if pull.is_lite else 0)
    )


def _result(
    pull: PullRequest, addr: str, response: Command, body: memoryview, inflated_bytes_max: int
) -> PullResult:
    """Read a response; raises BrokerError or ProtocolError."""
    status = _STATUS.get(response.code)
    if status is None:
        raise BrokerError(response.code, response.remark, addr)
    header = PullMessageResponseHeader.decode(response.ext)
    messages: list[MessageExt] = []
    next_offset, has_unreadable = header.next_begin_offset, False
    if status is PullStatus.FOUND:
        decoded = decode.decode_messages(body, pull.queue.broker_name, inflated_bytes_max)
        messages, next_offset = _messages(pull, decoded, next_offset)
        has_unreadable = decoded.has_unreadable
    return PullResult(
        status,
        next_offset,
        header.min_offset,
        header.max_offset,
        messages,
        header.suggest_which_broker_id,
        has_unreadable,
    )


def _messages(
    pull: PullRequest, decoded: decode.DecodedMessages, next_offset: int
) -> tuple[list[MessageExt], int]:
    """The messages of a response and where to go on: never beyond one that was not decoded."""
    messages = decoded.messages
    if not decoded.is_whole:
        if not messages:
            raise ProtocolError(f"{pull.queue} brought a record that cannot be read")
        next_offset = messages[-1].queue_offset + 1
    if pull.filter.tags:
        messages = decode.with_tags(messages, pull.filter.tags)
    if is_retry_topic(pull.queue.topic):
        decode.restore_topics(messages)
    return messages, next_offset
