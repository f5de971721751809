"""Asks brokers where queues begin and end, the queues that a reader knows included.

Name servers forget a broker that is away, and its queues with it. So a queue that the caller knows
(from a checkpoint, from offsets of the user) and a broker that the option `brokers` names are asked
for even when no route has them.
Invariant: the answer holds every queue of the routes and every known one, or there is an error:
BrokerAway while a broker cannot be asked, QueueShrank for a topic that its broker no longer has.
Only with failOnDataLoss=false, and said in the log, may known queues be left out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import (
    BrokerAway,
    BrokerError,
    CertificateRefused,
    QueueShrank,
    RemotingError,
    RouteNotFound,
)
from cometmq.model.admin_stats import TopicOffset
from cometmq.rules import route_queues
from cometmq.spark.source.offset_planning import BEGIN_ANEW
from cometmq.wire.bodies.admin import decode_topic_stats
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import GetTopicStatsInfoRequestHeader
from cometmq.wire.headers.offset import GetMaxOffsetRequestHeader, OffsetResponseHeader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence, Set

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.spark.source.topic_routes import FetchedRoutes, TopicRoutes
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

Positions = dict["MessageQueue", TopicOffset]

_REQUESTS_MAX = 512
_NAMED_MAX = 8
_EMPTY = TopicOffset(min_offset=0, max_offset=0)

_log = logging.getLogger("cometmq.spark")


class QueuePositions:
    """Positions of queues at brokers; one attempt a call, retries are the caller's."""

    def __init__(self, options: SourceOptions, routes: TopicRoutes) -> None:
        self._options = options
        self._routes = routes
        self._left_out: set[str] = set()

    def of_all(self, known: Collection[MessageQueue]) -> Positions:
        """The position of every queue that is read, and of those in `known`."""
        routes = self._routes.now()
        routed = by_broker(queue for queues in routes.queues.values() for queue in queues)
        unrouted = self._unrouted(routes, known)
        addresses = dict(routes.addresses)
        if unrouted:
            addresses = self._registered(addresses, unrouted)
        found: Positions = {}
        for broker in sorted(addresses.keys() & (routed.keys() | unrouted.keys())):
            some, others = routed.get(broker, []), unrouted.get(broker, [])
            try:
                found |= self._of_broker(broker, addresses[broker], some, others)
            except CertificateRefused:
                raise
            except RemotingError as error:
                if broker not in self._left_out:
                    raise self._away([broker], [*some, *others], str(error)) from error
            else:
                self._left_out.discard(broker)
        if self._options.fail_on_missing_topic:
            wanted = self._options.selection.queues.union(known, found)
            self._require(routes.missing, {queue.topic for queue in wanted})
        return dict(sorted(found.items()))

    @property
    def left_out(self) -> Set[str]:
        """Brokers that are away, and that are gone on without."""
        return self._left_out

    def leave_out(self, error: BrokerAway) -> None:
        """Go on without the brokers that are away until they are back, and say so once."""
        _log.warning("%s; failOnDataLoss=false, its queues keep their place", error)
        self._left_out.update(error.brokers)

    def ask(self, addr: str, code: RequestCode, headers: Sequence[Header]) -> list[Command]:
        """The answers of one broker to requests of one kind, in their order."""
        channel = self._routes.channel_to(addr)
        answers: list[Command] = []
        for at in range(0, len(headers), _REQUESTS_MAX):
            opaques = channel.post_all(code, headers[at : at + _REQUESTS_MAX])
            answers += [channel.wait(opaque) for opaque in opaques]
        return answers

    def _require(self, missing: Sequence[str], known: Collection[str]) -> None:
        """Raise RouteNotFound for a topic without route and without known queues.

        Not for the retry topic, which comes with the first message sent back.
        """
        for topic in missing:
            if topic not in known and topic != self._options.retry_topic:
                raise RouteNotFound(
                    f"topic {topic} does not exist: no name server of "
                    f"{';'.join(self._options.namesrv)} has a route for it"
                )

    def _unrouted(
        self, routes: FetchedRoutes, known: Collection[MessageQueue]
    ) -> dict[str, list[MessageQueue]]:
        """By broker, the known queues that no route has; and brokers named that no route has."""
        routed = {queue for queues in routes.queues.values() for queue in queues}
        wanted = self._options.selection.queues.union(known)
        unrouted: dict[str, list[MessageQueue]] = {
            broker: [] for broker in self._options.brokers if broker not in routes.addresses
        }
        for queue in sorted(wanted - routed):
            unrouted.setdefault(queue.broker_name, []).append(queue)
        return unrouted

    def _registered(
        self, addresses: dict[str, str], unrouted: Mapping[str, list[MessageQueue]]
    ) -> dict[str, str]:
        """The addresses of all brokers that are up; raises BrokerAway when a needed one isn't."""
        table = self._routes.cluster().broker_addr_table
        for broker, data in table.items():
            addr = route_queues.read_addr(data.broker_addrs, 0)
            if addr:
                addresses.setdefault(broker, addr)
        away = [broker for broker in unrouted if broker not in addresses]
        if not self._left_out.issuperset(away):
            queues = [queue for broker in away for queue in unrouted[broker]]
            known = ", ".join(sorted(table)) or "none"
            raise self._away(away, queues, f"the brokers that name servers know are: {known}")
        return addresses

    def _of_broker(
        self,
        broker: str,
        addr: str,
        routed: Collection[MessageQueue],
        others: Collection[MessageQueue],
    ) -> Positions:
        """Positions of queues of one broker; with `others` of queues that no route has."""
        topics = {queue.topic for queue in (*routed, *others)}
        if not topics:  # a broker that is named: the topics may be on it
            topics = set(self._options.selection.named_topics())
        stats = self._stats(addr, sorted(topics))
        if not (routed or others):
            return {queue: at for queue, at in stats.items() if self._covers(queue)}
        found = {queue: stats.get(queue, _EMPTY) for queue in routed}
        there = {queue.topic for queue in stats}
        gone = [queue for queue in (*routed, *others) if queue.topic not in there]
        if gone and self._options.fail_on_data_loss:
            raise QueueShrank(
                f"broker {broker} no longer has {_listed(gone)}: the topic was deleted; "
                f"{BEGIN_ANEW}, or set failOnDataLoss=false to go on without it"
            )
        found |= {queue: stats[queue] for queue in others if queue in stats}
        return found | self._beyond_the_topic(addr, set(others) - found.keys() - set(gone))

    def _beyond_the_topic(self, addr: str, queues: set[MessageQueue]) -> Positions:
        """Ends of queues that a topic had when it had more queues, if they hold something."""
        headers = [
            GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
            for queue in queues
        ]
        found: Positions = {}
        answers = self.ask(addr, RequestCode.GET_MAX_OFFSET, headers)
        for queue, answer in zip(queues, answers, strict=True):
            end = OffsetResponseHeader.decode(_succeeded(answer, addr).ext).offset
            if end > 0:
                found[queue] = TopicOffset(min_offset=0, max_offset=end)
        return found

    def _stats(self, addr: str, topics: Sequence[str]) -> Positions:
        """The positions of all queues that a broker has of some topics."""
        headers = [GetTopicStatsInfoRequestHeader(topic=topic) for topic in topics]
        found: Positions = {}
        for answer in self.ask(addr, RequestCode.GET_TOPIC_STATS_INFO, headers):
            if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                found |= decode_topic_stats(_succeeded(answer, addr).body)
        return found

    def _covers(self, queue: MessageQueue) -> bool:
        return self._options.selection.covers(queue)

    def _away(
        self, brokers: Sequence[str], queues: Sequence[MessageQueue], reason: str
    ) -> BrokerAway:
        what = f"queues {_listed(queues)}" if queues else f"its part of {self._options.selection}"
        return BrokerAway(
            f"broker {', '.join(brokers)} is away and {what} cannot be read ({reason}); start it, "
            f"or wait longer than retryForMs={self._options.retry_for_ms}; with "
            "failOnDataLoss=false the others are read meanwhile",
            brokers,
        )


def _succeeded(answer: Command, addr: str) -> Command:
    """The answer, unless it is an error of the broker: then raises BrokerError."""
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, addr)
    return answer


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Queues by the name of their broker."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


def _listed(queues: Sequence[MessageQueue]) -> str:
    """Some queues by name, and how many more there are."""
    named = ", ".join(str(queue) for queue in queues[:_NAMED_MAX])
    more = len(queues) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
