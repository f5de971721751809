"""AsyncAdmin: topics, their offsets, and the progress of groups.

Owns the requests of operators and jobs; refuses to know messages. It uses only requests that every
RocketMQ broker answers.
Java: DefaultMQAdminExt
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Self

from cometmq.client.producer.message_checks import check_topic
from cometmq.client.session.argument_checks import (
    check_flag,
    check_name,
    check_texts,
    check_whole,
    checked_offsets,
)
from cometmq.client.session.client_options import (
    ClientOptions,
    check_group,
    check_seconds,
    name_servers,
)
from cometmq.client.session.client_session import ClientSession, require_started
from cometmq.errors import BrokerError, ClientError, ConnectFailed, RouteNotFound
from cometmq.model.admin_stats import OffsetWrapper, TopicOffset
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import (
    DEFAULT_TOPIC,
    GLOBAL,
    ORDER_ATTRIBUTE,
    REPLY_TOPIC_SUFFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TopicConfig,
    is_in_global_order,
)
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.wire.bodies.admin import decode_topic_stats
from cometmq.wire.bodies.group import encode_group_config
from cometmq.wire.bodies.topic import decode_topic_config
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from cometmq.wire.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

_ROUTE_S = 10.0
_QUEUES_MAX, _PERM_MAX = 65_535, 7
_EMPTY = TopicOffset(min_offset=0, max_offset=0)


class AsyncAdmin:
    """Looks up and changes topics and offsets at name servers and brokers.

    `namesrv` is "host:port", several joined by ";" or as a list; without it the environment's
    NAMESRV_ADDR is used. Use it as a context manager, or call start and stop. All methods raise
    RemotingError when a server does not answer and BrokerError when it refuses.
    """

    def __init__(
        self, *, namesrv: str | Sequence[str] | None = None, timeout_s: float = 6.0
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        servers = name_servers(namesrv, os.environ)
        self._options = ClientOptions(namesrv=servers, call_timeout_s=timeout_s)
        self._session: ClientSession | None = None

    async def start(self) -> None:
        """Get ready. The first request that needs a connection opens it."""
        if self._session is None:
            self._session = ClientSession(self._options, SystemClock())

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    async def clusters(self) -> ClusterInfo:
        """All brokers and the clusters they belong to."""
        return await self._running().name_servers.clusters()

    async def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics, sorted; system topics only with `with_system`.

        Retry topics and dead-letter topics count as the users'.
        """
        check_flag("with_system", with_system)
        servers = self._running().name_servers
        found = set(await servers.topics())
        if not with_system:
            known = await servers.clusters()
            found -= SYSTEM_TOPICS | set(known.cluster_addr_table) | set(known.broker_addr_table)
            found = {name for name in found if not _is_system(name)}
        return sorted(found)

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        perm: int = 6,
        order: bool = False,
        brokers: Sequence[str] = (),
    ) -> None:
        """Create or change a topic on all masters, or on the brokers named; wait for its route.

        `queues` is the number on each broker, `perm` 6 means read and write, 4 read only, 2 write
        only. Raises ClientError for more queues of a topic that was made for global order.
        """
        check_topic(topic)
        check_whole("queues", queues, 1, _QUEUES_MAX)
        check_whole("perm", perm, 0, _PERM_MAX)
        check_flag("order", order)
        check_texts("brokers", brokers)
        masters = await self._masters(brokers)
        kept_by = [
            name for name, each in (await self._shapes(topic)).items() if is_in_global_order(each)
        ]
        if kept_by and (queues != 1 or set(masters) - set(kept_by)):
            raise ClientError(
                f"the topic {topic} keeps all its messages in one order, so it has one queue on "
                f"{', '.join(kept_by)} and cannot grow; make another topic"
            )
        await self._create(topic, queues, masters, perm=perm, order=order)

    async def create_ordered_topic(
        self, topic: str, *, perm: int = 6, groups: Sequence[str] = ()
    ) -> str:
        """Create a topic whose messages all have one order: one queue on one broker, whose name
        comes back.

        The topic is marked, and refuses to grow from then on; a broker of Apache's keeps the mark
        only where one of ours wrote it. The groups named are made there and marked as orderly.
        Raises ClientError when the topic has more queues, or lies on another broker, already.
        """
        check_topic(topic)
        check_whole("perm", perm, 0, _PERM_MAX)
        check_texts("groups", groups)
        for group in groups:
            check_group(group)
        shapes = await self._shapes(topic)
        found = sum(max(each.read_queue_nums, each.write_queue_nums) for each in shapes.values())
        if found > 1:
            raise ClientError(
                f"the topic {topic} exists with {found} queues on {', '.join(sorted(shapes))}; "
                "global order needs a topic that has had one queue from the start"
            )
        broker = min(shapes or (await self.clusters()).broker_addr_table, default="")
        masters = await self._masters([broker] if broker else ())
        mark = f"+message.type=FIFO,+{ORDER_ATTRIBUTE}={GLOBAL}"
        await self._create(topic, 1, masters, perm=perm, order=True, attributes=mark)
        for group in groups:
            config = SubscriptionGroupConfig(group_name=group, consume_message_orderly=True)
            code, body = (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                encode_group_config(config),
            )
            await self._running().call_checked(masters[broker], request(code, 0, None, body))
        return broker

    async def _create(
        self,
        topic: str,
        queues: int,
        masters: Mapping[str, str],
        *,
        perm: int,
        order: bool,
        attributes: str | None = None,
    ) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            order=order,
            attributes=attributes,
        )
        command = RequestCode.UPDATE_AND_CREATE_TOPIC
        for addr in masters.values():
            await self._running().call_checked(addr, request(command, 0, header))
        await self._wait_for_route(topic, queues, masters.keys())

    async def _shapes(self, topic: str) -> dict[str, TopicConfig]:
        """The topic's configuration at each broker that has it, by broker name."""
        session, header = self._running(), GetTopicConfigRequestHeader(topic=topic)
        route = await session.name_servers.route(topic)
        names = {data.broker_name for data in route.queue_datas} if route else set()
        found = {}
        for name, addr in (await self._masters(sorted(names)) if names else {}).items():
            answer = await session.call(addr, request(RequestCode.GET_TOPIC_CONFIG, 0, header))
            if answer.code == ResponseCode.SUCCESS:
                found[name] = decode_topic_config(answer.body)
        return found

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        check_name(topic)
        found = await self._running().routes.subscribe_queues(topic)
        if not found:
            raise RouteNotFound(f"no name server knows a readable queue of the topic {topic}")
        return found

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The first and the next offset of each queue, and when its last message was stored (ms).

        The difference of the offsets is what is stored; the time is 0 for an empty queue.
        """
        queues = await self.queues(topic)
        names = sorted({queue.broker_name for queue in queues})
        found: dict[MessageQueue, TopicOffset] = {}
        for table in await asyncio.gather(*(self._stats_of(topic, name) for name in names)):
            found |= table
        return {queue: found.get(queue, _EMPTY) for queue in queues}

    async def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The offset a group has committed in each queue; None where it has none."""
        check_group(group)
        queues = await self.queues(topic)
        found = await asyncio.gather(*(self._committed(group, queue) for queue in queues))
        return dict(zip(queues, found, strict=True))

    async def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """The progress of a group in each queue; without a commit it counts as being at the start.

        The lag of a queue is its `broker_offset - consumer_offset`.
        """
        check_group(group)
        bounds, offsets = await asyncio.gather(
            self.topic_stats(topic), self.group_offsets(group, topic)
        )
        return {
            queue: OffsetWrapper(
                broker_offset=bound.max_offset,
                consumer_offset=bound.min_offset if (at := offsets.get(queue)) is None else at,
            )
            for queue, bound in bounds.items()
        }

    async def set_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group. Its members, if any are running, will commit their own."""
        check_group(group)
        wanted = checked_offsets("offsets", offsets)
        for topic in {queue.topic for queue in wanted}:
            await self._running().routes.subscribe_queues(topic)  # where its brokers are
        await asyncio.gather(*(self._commit(group, queue, at) for queue, at in wanted.items()))

    def _running(self) -> ClientSession:
        return require_started(self._session, "admin")

    async def _masters(self, brokers: Sequence[str]) -> dict[str, str]:
        """The addresses of the masters, by broker name."""
        known = (await self.clusters()).broker_addr_table
        missing = sorted(set(brokers) - set(known))
        if missing:
            raise ConnectFailed(
                f"no broker named {', '.join(missing)}; there are: {', '.join(sorted(known))}"
            )
        masters = {
            name: data.master
            for name, data in known.items()
            if data.master and (not brokers or name in brokers)
        }
        if not masters:
            raise ConnectFailed("no broker has registered with the name server")
        return masters

    async def _wait_for_route(self, topic: str, queues: int, brokers: Collection[str]) -> None:
        """Wait for the brokers to register the topic, which they do after they answered."""
        session, deadline = self._running(), asyncio.get_running_loop().time() + _ROUTE_S
        while asyncio.get_running_loop().time() < deadline:
            route = await session.name_servers.route(topic)
            datas = route.queue_datas if route else ()
            registered = {data.broker_name: data.read_queue_nums for data in datas}
            if all(registered.get(name) == queues for name in brokers):
                session.routes.mark_stale(topic)
                return
            await asyncio.sleep(0.05)
        raise RouteNotFound(f"the topic {topic} was created but no name server knows it yet")

    async def _stats_of(self, topic: str, broker_name: str) -> dict[MessageQueue, TopicOffset]:
        session, header = self._running(), GetTopicStatsInfoRequestHeader(topic=topic)
        addr = session.routes.master_addr(broker_name)
        answer = await session.call_checked(
            addr, request(RequestCode.GET_TOPIC_STATS_INFO, 0, header)
        )
        return decode_topic_stats(answer.body)

    async def _committed(self, group: str, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            consumer_group=group,
            set_zero_if_not_found=False,
        )
        return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            consumer_group=group,
            commit_offset=offset,
        )
        addr = self._running().routes.master_addr(queue.broker_name)
        await self._running().call_checked(
            addr, request(RequestCode.UPDATE_CONSUMER_OFFSET, 0, header)
        )

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int | None:
        session = self._running()
        addr = session.routes.master_addr(queue.broker_name)
        answer: Command = await session.call(addr, request(code, 0, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, addr)
        return OffsetResponseHeader.decode(answer.ext).offset


def _is_system(topic: str) -> bool:
    return topic.startswith(SYSTEM_PREFIX) or topic.endswith(REPLY_TOPIC_SUFFIX)
