"""The planner's and the tasks' requests to name servers and brokers, with retries.

Owns the retries (a broker that restarts is asked again until `retryForMs` has passed) and the
process's cache of clients. Does not know Spark, Arrow, or how far a batch goes (`offset_planning`).
Invariant: an answer is complete or there is an error (`queue_positions`).
Used by one thread; `cluster_client_of` gives each process its own, so that a fork shares no socket.
Java: MQClientInstance, MQClientAPIImpl, MQAdminImpl.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import BrokerAway, BrokerError, QueueShrank, RemotingError, RouteNotFound
from cometmq.rules import route_queues
from cometmq.spark.source.arrival_watch import ArrivalWatch
from cometmq.spark.source.queue_positions import QueuePositions, by_broker
from cometmq.spark.source.retries import RetryDeadline
from cometmq.spark.source.topic_routes import TopicRoutes
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Set

    from cometmq.model.queue import MessageQueue
    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.source.planned_offsets import QueueOffsets
    from cometmq.spark.source.queue_positions import Positions
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

Result = TypeVar("Result")

_CLIENTS_MAX = 8
_UNKNOWN_TOPIC_RETRY_S = 3.0


class ClusterClient:
    """Requests to the brokers of some topics, over blocking channels opened when needed."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._routes = TopicRoutes(options)
        self._positions = QueuePositions(options, self._routes)
        self._was_known = False
        self._committed_at: set[tuple[str, str]] = set()
        self.arrivals = ArrivalWatch(options, self._address)
        """Waits for messages without asking again and again."""

    @property
    def left_out(self) -> Set[str]:
        """Brokers that are away, and that are gone on without."""
        return self._positions.left_out

    def retry_deadline(self) -> RetryDeadline:
        """A new deadline with the limit of the option `retryForMs`."""
        return RetryDeadline(self.options.retry_for_ms / 1000)

    def with_retries(self, action: Callable[[], Result]) -> Result:
        """Run the action; repeat it while a retry may help, then raise its error."""
        retry_deadline = self.retry_deadline()
        while True:
            try:
                return action()
            except (RemotingError, BrokerError, RouteNotFound, BrokerAway, QueueShrank) as error:
                self.reset()
                unknown = isinstance(error, RouteNotFound) and not self._was_known
                retry_deadline.wait_or_raise(error, _UNKNOWN_TOPIC_RETRY_S if unknown else None)

    def positions(self, known: Iterable[MessageQueue] = ()) -> Positions:
        """Where each queue begins and ends now: those of the topics, and those in `known`.

        A queue that one attempt found is among those that the next one must find. With
        failOnDataLoss=false it goes on without brokers that stay away.
        """
        wanted = set(known)

        def ask() -> Positions:
            wanted.update(
                queue for queues in self._routes.now().queues.values() for queue in queues
            )
            return self._positions.of_all(wanted)

        while True:
            try:
                found = self.with_retries(ask)
            except BrokerAway as error:
                if self.options.fail_on_data_loss:
                    raise
                self._positions.leave_out(error)
            else:
                self._was_known = True
                return found

    def offsets_at_times(self, times: Mapping[MessageQueue, int]) -> QueueOffsets:
        """The first offset stored at this time (ms) or later, for each queue."""

        def header(queue: MessageQueue) -> Header:
            return SearchOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=times[queue]
            )

        answers = self.ask_each(times, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return {
            queue: OffsetResponseHeader.decode(answer.ext).offset
            for queue, answer in answers.items()
        }

    def earliest_store_times(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """When the first message kept was stored (ms), for each queue; -1 where there is none."""

        def header(queue: MessageQueue) -> Header:
            return GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)

        answers = self.ask_each(queues, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return {
            queue: GetEarliestMsgStoretimeResponseHeader.decode(answer.ext).timestamp
            for queue, answer in answers.items()
        }

    def commit(self, offsets: QueueOffsets) -> None:
        """Store offsets of the option `group` at the brokers; raises after `retryForMs`.

        The first commit in a topic at a broker is answered before the others are sent: of two
        first ones at once Apache's broker forgets one (ConsumerOffsetManager.commitOffset).
        """

        def header(queue: MessageQueue) -> Header:
            return UpdateConsumerOffsetRequestHeader(
                topic=queue.topic,
                queue_id=queue.queue_id,
                consumer_group=self.options.group,
                commit_offset=offsets[queue],
            )

        ahead = {(queue.topic, queue.broker_name): queue for queue in offsets}
        first = {queue for place, queue in ahead.items() if place not in self._committed_at}
        for some in (first, offsets.keys() - first):
            self.ask_each(some, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self._committed_at |= ahead.keys()

    def ask_each(
        self,
        queues: Collection[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], Header],
        accepted: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> dict[MessageQueue, Command]:
        """One request per queue, those to one broker together; raises BrokerError.

        `accepted` are the codes that are no error.
        """

        def ask() -> dict[MessageQueue, Command]:
            found: dict[MessageQueue, Command] = {}
            for broker, some in by_broker(queues).items():
                addr = self._address(broker)
                answers = self._positions.ask(addr, code, [header(queue) for queue in some])
                for queue, answer in zip(some, answers, strict=True):
                    if answer.code not in accepted:
                        raise BrokerError(answer.code, answer.remark, addr)
                    found[queue] = answer
            return found

        return self.with_retries(ask)

    def channel(self, queue: MessageQueue) -> BlockingChannel:
        """The connection to the broker of a queue, opened if there is none."""
        return self._routes.channel_to(self._address(queue.broker_name))

    def reset(self) -> None:
        """Close every connection and forget the routes, after an error."""
        self._routes.reset()
        self.arrivals.close()

    def _address(self, broker: str) -> str:
        """Where a broker is, by the topics' routes or else by the list of all brokers."""
        addr = self._routes.now().addresses.get(broker)
        if addr is None:
            data = self._routes.cluster().broker_addr_table.get(broker)
            addr = route_queues.read_addr(data.broker_addrs, 0) if data else None
        if addr is None:
            raise BrokerAway(
                f"no name server knows broker {broker}; start it, or wait longer than "
                f"retryForMs={self.options.retry_for_ms}",
                [broker],
            )
        return addr


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
    if options not in _clients:
        while len(_clients) >= _CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).reset()
        _clients[options] = ClusterClient(options)
    return _clients[options]
