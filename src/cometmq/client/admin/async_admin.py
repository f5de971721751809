"""AsyncAdmin: topics, their offsets, and the progress of groups.

Owns the requests of operators and jobs; refuses to know messages. It uses only requests that every
RocketMQ broker answers.
Java: DefaultMQAdminExt
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from cometmq.client.admin.topic_changes import (
    TopicChanges,
    check_global_order,
    check_is_new,
    check_shape,
)
from cometmq.client.offsets.broker_offsets import BrokerOffsets
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
    tls_context,
)
from cometmq.client.session.client_session import ClientSession, require_started
from cometmq.errors import ClientError, RouteNotFound
from cometmq.model.admin_stats import QueueProgress, TopicOffset
from cometmq.model.group import SYSTEM_GROUPS, SubscriptionGroupConfig
from cometmq.model.topic import (
    GLOBAL,
    ORDER_ATTRIBUTE,
    PERMS,
    QUEUES_MAX,
    TopicConfig,
    is_system_topic,
)
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.wire.bodies.admin import decode_consume_stats
from cometmq.wire.bodies.group import decode_group_table, encode_group_config
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import GetConsumeStatsRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext

    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo

_PERM_MAX = 7
_EMPTY = TopicOffset(min_offset=0, max_offset=0)


class AsyncAdmin:
    """Looks up and changes topics and offsets at name servers and brokers.

    `namesrv` is "host:port", several joined by ";" or as a list; without it the environment's
    NAMESRV_ADDR is used. `access_key`, `secret_key`, `security_token` and `tls` are those of a
    producer. Use it as a context manager, or call start and stop. All methods raise RemotingError
    when a server does not answer and BrokerError when it refuses.
    """

    def __init__(
        self,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout_s: float = 6.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        tls: SSLContext | bool | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self._options = ClientOptions(
            namesrv=name_servers(namesrv, os.environ),
            call_timeout_s=timeout_s,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            tls=tls_context(tls),
        )
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
            found -= set(known.cluster_addr_table) | set(known.broker_addr_table)
            found = {name for name in found if not is_system_topic(name)}
        return sorted(found)

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | str = "rw",
        order: bool = False,
        brokers: Sequence[str] = (),
    ) -> None:
        """Create a topic on all masters, or on the brokers named; wait for its route.

        `queues` is the number on each broker, 65,536 at most; `read_queues` and `write_queues`
        default to it. `perm` is "r", "w" or "rw", or RocketMQ's number. Raises TopicExists when one
        of these brokers has the topic, and changes nothing; `alter_topic` changes it.
        """
        check_topic(topic)
        check_whole("queues", queues, 1, QUEUES_MAX)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=_queues("read_queues", read_queues, queues),
            write_queue_nums=_queues("write_queues", write_queues, queues),
            perm=_perm(perm),
            order=order,
        )
        check_flag("order", order)
        check_texts("brokers", brokers)
        changes = self._changes()
        masters = await changes.masters(brokers)
        routed = await changes.configs(topic, await changes.routed_brokers(topic))
        check_global_order(topic, routed, masters, (config.read_queue_nums,))
        check_is_new(topic, await changes.configs(topic, masters))
        check_shape(config)
        await changes.put(dict.fromkeys(masters, config))

    async def alter_topic(
        self,
        topic: str,
        queues: int | None = None,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | str | None = None,
        order: bool | None = None,
        brokers: Sequence[str] = (),
        may_hide_messages: bool = False,
    ) -> None:
        """Change what is named of a topic where it lies, or on the brokers named.

        The rest stays, attributes included. `queues` stands for both numbers. A change that takes
        queues from consumers raises WouldHideMessages, which counts what lies in them, unless
        `may_hide_messages`. Raises RouteNotFound for an unknown topic.
        """
        check_topic(topic)
        changed = _changed_fields(topic, queues, read_queues, write_queues, perm, order)
        check_texts("brokers", brokers)
        check_flag("may_hide_messages", may_hide_messages)
        changes = self._changes()
        before = await changes.configs(topic, brokers or await changes.routed_brokers(topic))
        if not before or set(brokers) - set(before):
            where = ", ".join(sorted(set(brokers) - set(before))) or "any broker"
            raise RouteNotFound(f"the topic {topic} does not exist on {where}; create it there")
        after = {name: replace(config, **changed) for name, config in before.items()}
        for config in after.values():
            check_shape(config)
            asked = (config.read_queue_nums, config.write_queue_nums)
            check_global_order(topic, before, (), asked)
        if not may_hide_messages:
            await changes.check_nothing_hidden(before, after)
        await changes.put(after)

    async def create_ordered_topic(
        self, topic: str, *, perm: int | str = "rw", groups: Sequence[str] = ()
    ) -> str:
        """Create a topic with one order for all its messages; return the name of its one broker.

        It has one queue. The topic is marked, and refuses to grow from then on; a broker of
        Apache's keeps the mark only where one of ours wrote it. One that exists with one queue is
        marked and keeps its permission. The groups named are made there and marked as orderly.
        Raises ClientError when the topic has more queues, or lies on another broker, already.
        """
        check_topic(topic)
        bits = _perm(perm)
        check_texts("groups", groups)
        for group in groups:
            check_group(group)
        changes = self._changes()
        shapes = await changes.configs(topic, await changes.routed_brokers(topic))
        found = sum(max(each.read_queue_nums, each.write_queue_nums) for each in shapes.values())
        if found > 1:
            raise ClientError(
                f"the topic {topic} exists with {found} queues on {', '.join(sorted(shapes))}; "
                "global order needs a topic that has had one queue from the start"
            )
        broker = min(shapes or (await self.clusters()).broker_addr_table, default="")
        masters = await changes.masters([broker] if broker else ())
        new = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=bits)
        config = replace(shapes.get(broker, new), order=True)
        mark = f"+message.type=FIFO,+{ORDER_ATTRIBUTE}={GLOBAL}"
        await changes.put({broker: config}, attributes=mark)
        for group in groups:
            made = SubscriptionGroupConfig(group_name=group, consume_message_orderly=True)
            code, body = (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                encode_group_config(made),
            )
            await self._running().call_checked(masters[broker], request(code, 0, None, body))
        return broker

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
        routes, changes = self._running().routes, self._changes()
        addrs = [routes.master_addr(name) for name in sorted({q.broker_name for q in queues})]
        found: dict[MessageQueue, TopicOffset] = {}
        for table in await asyncio.gather(*(changes.stats(topic, addr) for addr in addrs)):
            found |= table
        return {queue: found.get(queue, _EMPTY) for queue in queues}

    async def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The offset a group has committed in each queue; None where it has none."""
        check_group(group)
        queues = await self.queues(topic)
        offsets = BrokerOffsets(self._running())
        found = await asyncio.gather(*(offsets.committed(group, queue) for queue in queues))
        return dict(zip(queues, found, strict=True))

    async def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, QueueProgress]:
        """The progress of a group in each queue; without a commit it counts as being at the start.

        The lag of a queue is its `broker_offset - consumer_offset`.
        """
        check_group(group)
        bounds, offsets = await asyncio.gather(
            self.topic_stats(topic), self.group_offsets(group, topic)
        )
        return {
            queue: QueueProgress(
                broker_offset=bound.max_offset,
                consumer_offset=bound.min_offset if (at := offsets.get(queue)) is None else at,
            )
            for queue, bound in bounds.items()
        }

    async def groups(self) -> list[str]:
        """The names of all consumer groups at all masters, sorted, without the system's own."""
        masters = await self._changes().masters(())
        command = request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 0)
        answers = await asyncio.gather(
            *(self._running().call_checked(addr, command) for addr in masters.values())
        )
        found = {name for answer in answers for name in decode_group_table(answer.body).groups}
        return sorted(found.difference(SYSTEM_GROUPS))

    async def group_progress(self, group: str) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in every topic in which it has committed, its retry topic included.

        A queue without a commit counts as read up to offset 0.
        """
        check_group(group)
        masters = await self._changes().masters(())
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        answers = await asyncio.gather(
            *(
                self._running().call_checked(
                    addr, request(RequestCode.GET_CONSUME_STATS, 0, header)
                )
                for addr in masters.values()
            )
        )
        found: dict[MessageQueue, QueueProgress] = {}
        for answer in answers:
            found |= decode_consume_stats(answer.body).offset_table
        return dict(sorted(found.items()))

    async def set_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group. Its members, if any are running, will commit their own."""
        check_group(group)
        wanted, session = checked_offsets("offsets", offsets), self._running()
        for topic in {queue.topic for queue in wanted}:
            await session.routes.subscribe_queues(topic)  # where its brokers are
        brokers = BrokerOffsets(session)
        await asyncio.gather(*(brokers.commit(group, queue, at) for queue, at in wanted.items()))

    def _running(self) -> ClientSession:
        return require_started(self._session, "admin")

    def _changes(self) -> TopicChanges:
        return TopicChanges(self._running())


def _queues(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    check_whole(name, value, 1, QUEUES_MAX)
    return value


def _changed_fields(
    topic: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: int | str | None,
    order: bool | None,
) -> dict[str, Any]:
    """The fields of a TopicConfig that change; ClientError for a wrong one, or for none."""
    for name, value in (
        ("queues", queues),
        ("read_queues", read_queues),
        ("write_queues", write_queues),
    ):
        if value is not None:
            check_whole(name, value, 1, QUEUES_MAX)
    if order is not None:
        check_flag("order", order)
    fields = {
        "read_queue_nums": queues if read_queues is None else read_queues,
        "write_queue_nums": queues if write_queues is None else write_queues,
        "perm": None if perm is None else _perm(perm),
        "order": order,
    }
    changed = {name: value for name, value in fields.items() if value is not None}
    if not changed:
        raise ClientError(f"nothing of the topic {topic} is to be changed")
    return changed


def _perm(perm: int | str) -> int:
    """The bits of a permission; ClientError for what is none."""
    if isinstance(perm, str):
        if perm not in PERMS:
            raise ClientError(f"perm is {perm!r:.80}; it must be one of {', '.join(PERMS)}")
        return PERMS[perm]
    check_whole("perm", perm, 0, _PERM_MAX)
    return perm
