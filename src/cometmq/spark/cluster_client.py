"""What the planner and the tasks ask of name servers and brokers.

Owns: the route of the topic, the ends of its queues, connections (one a broker and process), and
patience: a broker that is being restarted is asked again until `retryForMs` has passed.
Refuses to know: Spark, Arrow, and how far a batch goes (`offsets`).
Invariant: an answer is complete or there is an error; a queue whose broker is away from the
route is not in it, and keeps its place in the plan.
Used by one thread; `cluster_of` gives each process its own, so that a fork shares no socket.
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
from cometmq.spark.offset_planning import key_of, ordered, queue_of
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
    from cometmq.spark.offset_planning import Offsets
    from cometmq.spark.options import Bound, SourceOptions
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

Result = TypeVar("Result")

_EndHeader = type[GetMaxOffsetRequestHeader] | type[GetMinOffsetRequestHeader]
_CODES: dict[_EndHeader, RequestCode] = {
    GetMaxOffsetRequestHeader: RequestCode.GET_MAX_OFFSET,
    GetMinOffsetRequestHeader: RequestCode.GET_MIN_OFFSET,
}
_CLUSTERS_MAX = 8
_QUESTIONS_MAX = 512
_ROUTE_FOR_S = 5.0
_UNKNOWN_TOPIC_PATIENCE_S = 3.0
_PAUSE_S = 0.2


class Patience:
    """Says whether a failed try may be repeated, and waits before it is.

    Starts to count at the first failure and anew after `progress`.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None

    def progress(self) -> None:
        """Something worked: the next failure starts counting from zero."""
        self._since = None

    def pause_or_raise(self, error: CometError, limit_s: float | None = None) -> None:
        """Wait a moment; raise the error when the limit has passed or it will not heal."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        limit = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
        if not _may_heal(error) or now - self._since >= limit:
            raise error
        time.sleep(_PAUSE_S)


class Cluster:
    """The brokers of one topic, reached over blocking channels that are opened when needed."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._channels: dict[str, BlockingChannel] = {}
        self._addresses: dict[str, str] = {}
        self._queues: list[str] = []
        self._route_at = -_ROUTE_FOR_S
        self._was_known = False

    def patience(self) -> Patience:
        """A new one, with the limit of the option `retryForMs`."""
        return Patience(self.options.retry_for_ms / 1000)

    def patiently(self, action: Callable[[], Result]) -> Result:
        """Run the action again while it fails in a way that may heal, then raise its error."""
        patience = self.patience()
        while True:
            try:
                return action()
            except (RemotingError, BrokerError, RouteNotFound) as error:
                self.reset()
                unknown = isinstance(error, RouteNotFound) and not self._was_known
                patience.pause_or_raise(error, _UNKNOWN_TOPIC_PATIENCE_S if unknown else None)

    def heads(self) -> Offsets:
        """The offset after the last message of every queue."""
        return self.patiently(lambda: self._ends(self._queues_now(), GetMaxOffsetRequestHeader))

    def begins(self, keys: Iterable[str] | None = None) -> Offsets:
        """The offset of the first message kept, of these queues or of all."""
        wanted = None if keys is None else sorted(keys)

        def ask() -> Offsets:
            queues = self._queues_now() if wanted is None else wanted
            return self._ends(queues, GetMinOffsetRequestHeader)

        return self.patiently(ask)

    def at_time(self, time_ms: int) -> Offsets:
        """The first offset stored at this time or later, of every queue."""
        topic = self.options.topic

        def header(queue_id: int) -> Header:
            return SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=time_ms)

        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return self.patiently(lambda: self._ask_each(self._queues_now(), code, header))

    def resolve(self, bound: Bound, left_out: str) -> Offsets:
        """The offsets that a bound means now.

        `left_out` (earliest or latest) says where a queue is that a list of offsets doesn't name.
        """
        if bound.kind == "latest":
            return self.heads()
        if bound.kind == "earliest":
            return self.begins()
        if bound.kind == "time":
            return self.at_time(bound.time_ms)
        return self._exact(dict(bound.offsets), left_out)

    def channel(self, broker: str) -> BlockingChannel:
        """The connection to a broker of the topic, made when there is none that is open."""
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
        begins, heads = self.begins(), self.heads()
        others = begins if left_out == "earliest" else heads
        exact: Offsets = {}
        for key, at in ({**others, **given}).items():
            head = heads.get(key)
            if head is None or at > head:
                has = "is no queue" if head is None else f"ends at {head}"
                raise SettingsError(
                    f"the offset {at} of {key} cannot be used: in topic {self.options.topic} "
                    f"{key} {has}"
                )
            exact[key] = {-2: begins[key], -1: head}.get(at, at)
        return ordered(exact)

    def _queues_now(self) -> list[str]:
        """The keys of all readable queues, none when the topic may be missing and is."""
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
            key_of(queue.broker_name, queue.queue_id)
            for queue in queues
            if queue.broker_name in self._addresses
        ]
        self._route_at, self._was_known = time.monotonic(), True
        return self._queues

    def _fetch_route(self) -> TopicRouteData:
        """Ask the name servers in turn; the last one's error is the one raised."""
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
        """One question a queue; those to one broker go out together."""
        of_broker: dict[str, list[tuple[str, int]]] = {}
        for key in keys:
            broker, queue_id = queue_of(key)
            of_broker.setdefault(broker, []).append((key, queue_id))
        found: Offsets = {}
        for broker, queues in of_broker.items():
            channel = self.channel(broker)
            for at in range(0, len(queues), _QUESTIONS_MAX):
                some = queues[at : at + _QUESTIONS_MAX]
                opaques = channel.post_all(code, [header(queue_id) for _, queue_id in some])
                for (key, _), opaque in zip(some, opaques, strict=True):
                    found[key] = _offset(channel, channel.wait(opaque))
        return ordered(found)


def _offset(channel: BlockingChannel, answer: Command) -> int:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, channel.addr)
    return OffsetResponseHeader.decode(answer.ext).offset


def _may_heal(error: CometError) -> bool:
    """Whether waiting can help: brokers restart, routes come back, a full queue drains."""
    if isinstance(error, BrokerError):
        return error.code in {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
    return error.retriable


_clusters: dict[SourceOptions, Cluster] = {}
_owner = 0


def cluster_of(options: SourceOptions) -> Cluster:
    """This process's cluster for these options; kept, so that a worker reuses its connections.

    A worker is forked from a process that may have connections of its own: those are left alone.
    """
    global _owner
    if _owner != os.getpid():
        _clusters.clear()
        _owner = os.getpid()
    while len(_clusters) >= _CLUSTERS_MAX and options not in _clusters:
        _clusters.pop(next(iter(_clusters))).reset()
    return _clusters.setdefault(options, Cluster(options))
