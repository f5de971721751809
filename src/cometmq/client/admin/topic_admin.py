"""AsyncTopicAdmin: topics, where they lie, and what they hold.

It uses only requests that every RocketMQ broker answers. Java: DefaultMQAdminExt
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cometmq.client.admin.broker_admin import AsyncBrokerAdmin
from cometmq.client.admin.nearest_name import nearest
from cometmq.client.admin.topic_changes import check_global_order, check_is_new, check_shape
from cometmq.client.producer.message_checks import check_topic
from cometmq.client.session.argument_checks import (
    check_flag,
    check_name,
    check_texts,
    check_whole,
)
from cometmq.client.session.client_options import check_group
from cometmq.errors import ClientError, RouteNotFound
from cometmq.model.admin_stats import TopicOffset, TopicTraffic, TrafficFigures
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import (
    GLOBAL,
    ORDER_ATTRIBUTE,
    PERMS,
    QUEUES_MAX,
    TopicConfig,
    is_system_topic,
)
from cometmq.wire.bodies.broker import decode_broker_figures
from cometmq.wire.bodies.group import encode_group_config
from cometmq.wire.bodies.name_lists import decode_group_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import (
    DeleteTopicRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from cometmq.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import TopicRouteData

_PERM_MAX = 7
_EMPTY = TopicOffset(min_offset=0, max_offset=0)


class AsyncTopicAdmin(AsyncBrokerAdmin):
    """The part of an admin that is about topics."""

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
            near = nearest(topic, await self._running().name_servers.topics())
            raise RouteNotFound(
                f"the topic {topic} does not exist on {where}{near or '; create it there'}"
            )
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

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic with its messages, everywhere; return the brokers that had it, sorted.

        The offsets of groups in it go, too. Raises RouteNotFound for an
        unknown topic, ClientError for one of RocketMQ's own.
        """
        check_name(topic)
        if is_system_topic(topic):
            raise ClientError(f"{topic} is a topic of RocketMQ's own; brokers need it")
        session, brokers = self._running(), sorted(await self.topic_config(topic))
        masters = await self._changes().masters(brokers)
        header = DeleteTopicRequestHeader(topic=topic)
        for addr in masters.values():
            command = request(RequestCode.DELETE_TOPIC_IN_BROKER, 0, header)
            await session.call_checked(addr, command)
        gone = DeleteTopicFromNamesrvRequestHeader(topic=topic)
        await session.name_servers.ask_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)
        session.routes.forget(topic)
        return brokers

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """The topic as each of its brokers has it, by broker name. Raises RouteNotFound."""
        await self.topic_route(topic)
        changes = self._changes()
        return await changes.configs(topic, await changes.routed_brokers(topic))

    async def topic_route(self, topic: str) -> TopicRouteData:
        """The brokers and queues of a topic, as name servers tell clients. Raises RouteNotFound."""
        check_name(topic)
        servers = self._running().name_servers
        route = await servers.route(topic)
        if route is None:
            near = nearest(topic, await servers.topics())
            raise RouteNotFound(f"no name server knows the topic {topic}{near}")
        return route

    async def topic_groups(self, topic: str) -> list[str]:
        """The groups that read a topic, connected or with offsets in it, sorted."""
        brokers = [data.broker_name for data in (await self.topic_route(topic)).broker_datas]
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        code, found = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, set[str]()
        for answer in (await self._ask_masters(code, header, brokers=brokers)).values():
            if answer.code == ResponseCode.SUCCESS:
                found.update(decode_group_list(answer.body))
        return sorted(found)

    async def topic_traffic(self, topic: str) -> TopicTraffic:
        """How many messages came into a topic, and how many of them each group was given.

        Of all its brokers together. A broker counts from its start on.
        """
        brokers = [data.broker_name for data in (await self.topic_route(topic)).broker_datas]
        groups = await self.topic_groups(topic)
        written = await self._figures("TOPIC_PUT_NUMS", topic, brokers)
        read = {
            group: await self._figures("GROUP_GET_NUMS", f"{topic}@{group}", brokers)
            for group in groups
        }
        return TopicTraffic(written=written, read=read)

    async def _figures(self, name: str, key: str, brokers: Sequence[str]) -> TrafficFigures:
        """A count of all these brokers; they refuse where they have counted nothing."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        per_second, in_day = 0.0, 0
        code = RequestCode.VIEW_BROKER_STATS_DATA
        for answer in (await self._ask_masters(code, header, brokers=brokers)).values():
            if answer.code == ResponseCode.SUCCESS:
                minute, _, day = decode_broker_figures(answer.body)
                per_second, in_day = per_second + minute[1], in_day + day[0]
        return TrafficFigures(per_second, in_day)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        check_name(topic)
        found = await self._running().routes.subscribe_queues(topic)
        if not found:
            near = nearest(topic, await self._running().name_servers.topics())
            raise RouteNotFound(f"no name server knows a readable queue of the topic {topic}{near}")
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
