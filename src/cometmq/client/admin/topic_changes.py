"""Creating and changing a topic at its brokers, and what a change hides from consumers.

Owns the requests and the wait for the route; refuses to decide which arguments are sensible. A
broker knows one request for both, so what is there is read first.
Java: DefaultMQAdminExtImpl.createAndUpdateTopicConfig, UpdateTopicSubCommand
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    RouteNotFound,
    TopicExists,
    WouldHideMessages,
)
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import DEFAULT_TOPIC, PERM_READ, TopicConfig, is_in_global_order
from cometmq.wire.bodies.admin import decode_topic_stats
from cometmq.wire.bodies.topic import decode_topic_config, decode_topic_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.admin_stats import TopicOffset
    from cometmq.model.route import QueueData

_ROUTE_S = 10.0
_LISTED_MAX = 10


class TopicChanges:
    """The topics of a cluster, to be read and written. Belongs to its session's loop."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def masters(self, brokers: Collection[str]) -> dict[str, str]:
        """The addresses of these masters, or of all, by broker name. Raises ConnectFailed."""
        known = (await self._session.name_servers.clusters()).broker_addr_table
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

    async def routed_brokers(self, topic: str) -> set[str]:
        """The brokers that have the topic, by the name servers."""
        route = await self._session.name_servers.route(topic)
        return {data.broker_name for data in route.queue_datas} if route else set()

    async def configs(self, topic: str, brokers: Collection[str]) -> dict[str, TopicConfig]:
        """The topic as each of these brokers has it; without those that have none."""
        if not brokers:
            return {}
        masters = await self.masters(brokers)
        found = await asyncio.gather(*(self._config(topic, addr) for addr in masters.values()))
        return {
            name: config for name, config in zip(masters, found, strict=True) if config is not None
        }

    async def put(
        self, configs: Mapping[str, TopicConfig], *, attributes: str | None = None
    ) -> None:
        """Give each broker its configuration and wait until name servers know all.

        `attributes` is a change, `+name=value,-name`; the others stay. Raises RouteNotFound when
        name servers do not hear of it in time.
        """
        masters = await self.masters(configs)
        for name, config in configs.items():
            header = CreateTopicRequestHeader(
                topic=config.topic_name,
                default_topic=DEFAULT_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
                attributes=attributes,
            )
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, 0, header)
            await self._session.call_checked(masters[name], command)
        await self._wait_for_route(configs)

    async def check_nothing_hidden(
        self, before: Mapping[str, TopicConfig], after: Mapping[str, TopicConfig]
    ) -> None:
        """Raise WouldHideMessages where a change takes queues from consumers."""
        if not (hidden := hidden_queues(before, after)):
            return
        messages = await self._messages_in(hidden)
        raise WouldHideMessages(
            f"the change would take {len(hidden)} queues of {hidden[0].topic} from consumers; "
            f"{_hidden_text(messages)}. They can be read again once the change is undone. To make "
            "it all the same: may_hide_messages=True (--yes)",
            messages,
        )

    async def _messages_in(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """How many messages these queues of one topic hold; those without any are left out."""
        wanted = sorted(queues)
        found: dict[MessageQueue, int] = {}
        for name, addr in (await self.masters({queue.broker_name for queue in wanted})).items():
            stats = await self.stats(wanted[0].topic, addr)
            for queue in wanted:
                if queue.broker_name == name and (bounds := stats.get(queue)) is not None:
                    found[queue] = bounds.max_offset - bounds.min_offset
        return {queue: count for queue, count in found.items() if count}

    async def stats(self, topic: str, addr: str) -> dict[MessageQueue, TopicOffset]:
        """The offsets of each queue of a topic at the broker of this address."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        command = request(RequestCode.GET_TOPIC_STATS_INFO, 0, header)
        return decode_topic_stats((await self._session.call_checked(addr, command)).body)

    async def _config(self, topic: str, addr: str) -> TopicConfig | None:
        header = GetTopicConfigRequestHeader(topic=topic)
        answer = await self._session.call(addr, request(RequestCode.GET_TOPIC_CONFIG, 0, header))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # Apache's brokers before 5.0
            every = await self._session.call(addr, request(RequestCode.GET_ALL_TOPIC_CONFIG, 0))
            if every.code == ResponseCode.SUCCESS:
                return decode_topic_table(every.body).topics.get(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, addr)
        return decode_topic_config(answer.body)

    async def _wait_for_route(self, configs: Mapping[str, TopicConfig]) -> None:
        """Wait for the brokers to register the topic, which they do after they answered."""
        topic = next(iter(configs.values())).topic_name
        session, deadline = self._session, asyncio.get_running_loop().time() + _ROUTE_S
        while True:
            route = await session.name_servers.route(topic)
            datas = {data.broker_name: data for data in route.queue_datas} if route else {}
            is_late = asyncio.get_running_loop().time() >= deadline
            if all(
                _is_registered(config, datas.get(name), any_perm=is_late)
                for name, config in configs.items()
            ):
                session.routes.forget(topic)
                return
            if is_late:
                raise RouteNotFound(
                    f"the topic {topic} is written but no name server knows it so yet"
                )
            await asyncio.sleep(0.05)


def _is_registered(config: TopicConfig, data: QueueData | None, *, any_perm: bool) -> bool:
    """Whether a name server has this; a broker that may not be written takes that bit away."""
    return (
        data is not None
        and data.read_queue_nums == config.read_queue_nums
        and data.write_queue_nums == config.write_queue_nums
        and (any_perm or data.perm == config.perm)
    )


def check_is_new(topic: str, found: Mapping[str, TopicConfig]) -> None:
    """Raise TopicExists when a broker has the topic."""
    if found:
        shapes = ", ".join(f"{name} ({_shape(config)})" for name, config in sorted(found.items()))
        raise TopicExists(
            f"the topic {topic} exists on {shapes}; change it with alter_topic "
            f"(cometmq topic alter {topic})"
        )


def check_shape(config: TopicConfig) -> None:
    """Raise ClientError for queues that would be written and not read."""
    read, write = config.read_queue_nums, config.write_queue_nums
    if write > read and config.perm & PERM_READ:
        raise ClientError(
            f"{write} write queues and {read} read queues: what is sent to the last "
            f"{write - read} of {config.topic_name} would never be read; give as many read queues"
        )


def check_global_order(
    topic: str, found: Mapping[str, TopicConfig], brokers: Collection[str], queues: Collection[int]
) -> None:
    """Raise ClientError where a topic in global order would get another queue."""
    kept_by = [name for name, config in found.items() if is_in_global_order(config)]
    if kept_by and (set(queues) - {1} or set(brokers) - set(kept_by)):
        raise ClientError(
            f"the topic {topic} keeps all its messages in one order, so it has one queue on "
            f"{', '.join(kept_by)} and cannot grow; make another topic"
        )


def hidden_queues(
    before: Mapping[str, TopicConfig], after: Mapping[str, TopicConfig]
) -> list[MessageQueue]:
    """The queues that consumers read before a change and not after it."""
    return [
        MessageQueue(config.topic_name, name, queue_id)
        for name, config in after.items()
        for queue_id in range(_readable(config), _readable(before[name]))
    ]


def _hidden_text(messages: Mapping[MessageQueue, int]) -> str:
    """Which messages lie in these queues, in words."""
    if not messages:
        return "no message lies in them now"
    listed = [f"{q.broker_name} {q.queue_id}: {count:,}" for q, count in sorted(messages.items())]
    more = f", and {len(listed) - _LISTED_MAX} more" if len(listed) > _LISTED_MAX else ""
    places = ", ".join(listed[:_LISTED_MAX])
    return f"{sum(messages.values()):,} messages lie in them ({places}{more})"


def _readable(config: TopicConfig) -> int:
    return config.read_queue_nums if config.perm & PERM_READ else 0


def _shape(config: TopicConfig) -> str:
    return f"{config.read_queue_nums} read and {config.write_queue_nums} write queues"
