"""The planner's and the tasks' requests to name servers and brokers.

Owns the route of the topic, the offsets of its queues, the connections (one per broker and
process), and the retries: a broker that restarts is asked again until `retryForMs` has passed.
Does not know Spark, Arrow, or how far a batch goes (`offset_planning`).
Invariant: an answer is complete or there is an error; a queue whose broker is missing from the
route is not in the answer, and keeps its offset in the plan.
Used by one thread; `cluster_client_of` gives each process its own, so that a fork shares no socket.
Java: MQClientInstance, MQClientAPIImpl, MQAdminImpl.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import (
    BrokerError,
    CometError,
    RemotingError,
    RouteNotFound,
    SettingsError,
)
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.rules import route_queues
from cometmq.spark.source.offset_planning import offset_key, parse_offset_key, sorted_by_key
from cometmq.wire.bodies.route import decode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cometmq.model.route import TopicRouteData
    from cometmq.spark.source.offset_planning import Offsets
    from cometmq.spark.source.source_options import OffsetBound, SourceOptions
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

Result = TypeVar("Result")

_EndHeader = type[GetMaxOffsetRequestHeader] | type[GetMinOffsetRequestHeader]
_CODES: dict[_EndHeader, RequestCode] = {
    GetMaxOffsetRequestHeader: RequestCode.GET_MAX_OFFSET,
    GetMinOffsetRequestHeader: RequestCode.GET_MIN_OFFSET,
}
_CLIENTS_MAX = 8
_REQUESTS_MAX = 512
_ROUTE_FOR_S = 5.0
_UNKNOWN_TOPIC_RETRY_S = 3.0
_PAUSE_S = 0.2


class RetryDeadline:
    """Decides whether a failed attempt is retried, and waits before it is.

    The time starts at the first failure, and starts again after `reset`.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None

    def reset(self) -> None:
        """Note a success: the next failure starts the time again."""
        self._since = None

    def wait_or_raise(self, error: CometError, limit_s: float | None = None) -> None:
        """Wait a moment; raise the error when the time is over or a retry cannot help."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        limit = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
        if not _is_temporary(error) or now - self._since >= limit:
            raise error
        time.sleep(_PAUSE_S)


class ClusterClient:
    """Requests to the brokers of one topic, over blocking channels opened when needed."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._channels: dict[str, BlockingChannel] = {}
        self._addresses: dict[str, str] = {}
        self._queues: list[str] = []
        self._route_at = -_ROUTE_FOR_S
        self._was_known = False

    def retry_deadline(self) -> RetryDeadline:
        """A new deadline with the limit of the option `retryForMs`."""
        return RetryDeadline(self.options.retry_for_ms / 1000)

    def with_retries(self, action: Callable[[], Result]) -> Result:
        """Run the action; repeat it while a retry may help, then raise its error."""
        retry_deadline = self.retry_deadline()
        while True:
            try:
                return action()
            except (RemotingError, BrokerError, RouteNotFound) as error:
                self.reset()
                unknown = isinstance(error, RouteNotFound) and not self._was_known
                retry_deadline.wait_or_raise(error, _UNKNOWN_TOPIC_RETRY_S if unknown else None)

    def latest_offsets(self) -> Offsets:
        """The offset after the last message of every queue."""
        return self.with_retries(lambda: self._ends(self._queues_now(), GetMaxOffsetRequestHeader))

    def earliest_offsets(self, keys: Iterable[str] | None = None) -> Offsets:
        """The offset of the first message kept, of these queues or of all."""
        wanted = None if keys is None else sorted(keys)

        def ask() -> Offsets:
            queues = self._queues_now() if wanted is None else wanted
            return self._ends(queues, GetMinOffsetRequestHeader)

        return self.with_retries(ask)

    def offsets_at_time(self, time_ms: int) -> Offsets:
        """The first offset stored at this time or later, of every queue."""
        topic = self.options.topic

        def header(queue_id: int) -> Header:
            return SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=time_ms)

        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return self.with_retries(lambda: self._ask_each(self._queues_now(), code, header))

    def resolve(self, bound: OffsetBound, left_out: str) -> Offsets:
        """The offsets that a bound means now.

        `left_out` (earliest or latest) is for queues that a list of offsets does not name.
        """
        if bound.kind == "latest":
            return self.latest_offsets()
        if bound.kind == "earliest":
            return self.earliest_offsets()
        if bound.kind == "time":
            return self.offsets_at_time(bound.time_ms)
        return self._exact(dict(bound.offsets), left_out)

    def channel(self, broker: str) -> BlockingChannel:
        """The connection to a broker of the topic, opened if there is none."""
        if broker not in self._addresses:
            self._fresh_queues()
        addr = self._addresses.get(broker)
        if addr is None:
            raise RouteNotFound(
                f"the name servers know no broker {broker} for topic {self.options.topic} now"
            )
        return self._channel_to(addr)

    def reset(self) -> None:
        """Close every connection and forget the route, after an error."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._addresses.clear()
        self._route_at = -_ROUTE_FOR_S

    def _exact(self, given: Mapping[str, int], left_out: str) -> Offsets:
        earliest_offsets, latest_offsets = self.earliest_offsets(), self.latest_offsets()
        others = earliest_offsets if left_out == "earliest" else latest_offsets
        exact: Offsets = {}
        for key, at in ({**others, **given}).items():
            latest = latest_offsets.get(key)
            if latest is None or at > latest:
                has = "is no queue" if latest is None else f"ends at {latest}"
                raise SettingsError(
                    f"the offset {at} of {key} cannot be used: in topic {self.options.topic} "
                    f"{key} {has}"
                )
            exact[key] = {-2: earliest_offsets[key], -1: latest}.get(at, at)
        return sorted_by_key(exact)

    def _queues_now(self) -> list[str]:
        """The keys of all readable queues; none if the topic is missing and may be."""
        try:
            return self._fresh_queues()
        except RouteNotFound:
            if self.options.fail_on_missing_topic:
                raise
            return []

    def _fresh_queues(self) -> list[str]:
        if time.monotonic() - self._route_at < _ROUTE_FOR_S:
            return self._queues
        topic = self.options.topic
        route = self._fetch_route()
        self._addresses = {
            data.broker_name: addr
            for data in route.broker_datas
            if (addr := route_queues.read_addr(data.broker_addrs, 0))
        }
        queues = route_queues.subscribe_queues(topic, route)
        if not queues and route.queue_datas:
            raise BrokerError(
                ResponseCode.NO_PERMISSION, f"topic {topic} may not be read", "the route"
            )
        self._queues = [
            offset_key(queue.broker_name, queue.queue_id)
            for queue in queues
            if queue.broker_name in self._addresses
        ]
        self._route_at = time.monotonic()
        self._was_known = True
        return self._queues

    def _fetch_route(self) -> TopicRouteData:
        """Ask one name server after the other; raise the error of the last one."""
        topic = self.options.topic
        header = GetRouteInfoRequestHeader(topic=topic)
        failure: CometError = RouteNotFound("no name server is configured")
        for addr in self.options.namesrv:
            try:
                answer = self._channel_to(addr).call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            except RemotingError as error:
                failure = error
                continue
            if answer.code == ResponseCode.SUCCESS:
                return decode_route(answer.body)
            if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                raise BrokerError(answer.code, answer.remark, addr)
            failure = RouteNotFound(
                f"topic {topic} does not exist: the name server {addr} has no route for it"
            )
        raise failure

    def _channel_to(self, addr: str) -> BlockingChannel:
        channel = self._channels.get(addr)
        if channel is None or not channel.is_open:
            channel = BlockingChannel(addr, self.options.timeout_ms / 1000)
            self._channels[addr] = channel
        return channel

    def _ends(self, keys: Iterable[str], kind: _EndHeader) -> Offsets:
        topic = self.options.topic
        code = _CODES[kind]
        return self._ask_each(keys, code, lambda queue_id: kind(topic=topic, queue_id=queue_id))

    def _ask_each(
        self, keys: Iterable[str], code: RequestCode, header: Callable[[int], Header]
    ) -> Offsets:
        """One request per queue; those to one broker are sent in one write."""
        of_broker: dict[str, list[tuple[str, int]]] = {}
        for key in keys:
            broker, queue_id = parse_offset_key(key)
            of_broker.setdefault(broker, []).append((key, queue_id))
        found: Offsets = {}
        for broker, queues in of_broker.items():
            channel = self.channel(broker)
            for at in range(0, len(queues), _REQUESTS_MAX):
                some = queues[at : at + _REQUESTS_MAX]
                opaques = channel.post_all(code, [header(queue_id) for _, queue_id in some])
                for (key, _), opaque in zip(some, opaques, strict=True):
                    found[key] = _offset(channel, channel.wait(opaque))
        return sorted_by_key(found)


def _offset(channel: BlockingChannel, answer: Command) -> int:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, channel.addr)
    return OffsetResponseHeader.decode(answer.ext).offset


def _is_temporary(error: CometError) -> bool:
    """Whether a retry can help: brokers restart, routes return, a busy broker recovers."""
    if isinstance(error, BrokerError):
        return error.code in {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
    return error.retriable


_clients: dict[SourceOptions, ClusterClient] = {}
_owner = 0


def cluster_client_of(options: SourceOptions) -> ClusterClient:
    """This process's client for these options, cached so that a worker reuses its connections.

    A worker is forked from a process that may have connections of its own: they are not touched.
    """
    global _owner
    if _owner != os.getpid():
        _clients.clear()
        _owner = os.getpid()
    while len(_clients) >= _CLIENTS_MAX and options not in _clients:
        _clients.pop(next(iter(_clients))).reset()
    return _clients.setdefault(options, ClusterClient(options))
