"""What the broker says to name servers: registered at the start, again and again, and gone.

Owns the registration (103) to every name server side by side, every period and at once after a
change of topics, the question before it (322, a setting), the farewell (104), and the question
which other broker holds a topic in global order. Refuses to know topics' rules. A name server that
is away is tried again with the next registration and holds nobody up.
Java: BrokerOuterAPI, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

from cometmq.errors import CometError, ProtocolError
from cometmq.model.topic import is_in_global_order
from cometmq.net.dispatcher import Reply
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.bodies.route import decode_route
from cometmq.wire.bodies.topic import (
    Registration,
    TopicTable,
    decode_topic_config,
    deflate_registration,
    encode_data_version,
    encode_registration,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import GetTopicConfigRequestHeader
from cometmq.wire.headers.namesrv import (
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.model.topic import DataVersion
    from cometmq.net.channel_pool import ChannelPool
    from cometmq.net.connection import Connection
    from cometmq.net.dispatcher import Answered, Failed, Handler, Settle
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.cold_reads import Aside
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)
_T = TypeVar("_T")

FAREWELL_S = 3.0
"""How long a name server may take to hear that the broker stops."""

HEARD_S = 1.0
"""How long an answer waits for name servers to hear of a topic it made."""

AGAIN_S = 5.0
"""Time to the next try while a name server is away, seconds."""

AT_ONCE_MAX = 500
"""Topics whose registration is encoded on the loop: about 3 ms."""

_PERIOD_S = (10.0, 60.0)


class Elsewhere(NamedTuple):
    """A topic that another broker has."""

    topic: str
    broker_name: str
    is_in_global_order: bool


class Announced:
    """A handler whose answer waits for what it stands on: topics and groups are on disk.

    When it made or changed a topic, the name servers have heard of it too: a client asks them for
    the topic's route as soon as it has the answer. What such a handler looks at before it changes
    anything is fetched by a thread where it is not in memory, and the handler asked again.
    """

    __slots__ = ("_aside", "_failed", "_groups", "_handler", "_outbound", "_settle", "_topics")

    def __init__(
        self,
        handler: Handler,
        topics: Topics,
        groups: ConsumerGroups,
        aside: Aside,
        outbound: Outbound,
        settle: Settle,
        failed: Failed,
    ) -> None:
        self._handler, self._topics, self._groups = handler, topics, groups
        self._aside = aside
        self._outbound, self._settle, self._failed = outbound, settle, failed

    def __call__(self, request: Command, connection: Connection) -> Answered | Awaitable[Answered]:
        """Answer as the handler does, at once or a little later."""
        before = self._topics.generation, self._groups.version
        try:
            answer = self._handler(request, connection)
        except NotInMemory:
            return self._after(self._again(request, connection), request, before)
        if isinstance(answer, Awaitable):
            return self._after(answer, request, before)
        return self._when_safe(answer, request, before)

    def _when_safe(
        self, answer: Answered, request: Command, before: tuple[int, DataVersion]
    ) -> Answered | Awaitable[Answered]:
        """The answer, or what waits for the disk and the name servers and is it then."""
        if not isinstance(answer, Reply):
            return answer
        is_told = self._topics.generation == before[0]
        is_same = is_told and self._groups.version is before[1]
        if is_same and (answer.code or not self._is_behind(request)):
            return answer  # a refusal stands on nothing
        safe: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if answer.durable:  # asked for in this turn, which alone knows what became of the message
            self._settle(safe.set_result)
        else:
            safe.set_result(None)
        return self._later(answer, safe, is_told=is_told)

    async def _again(self, request: Command, connection: Connection) -> Answered:
        answer = await self._aside.again(lambda: self._handler(request, connection))
        return await answer if isinstance(answer, Awaitable) else answer

    def _is_behind(self, request: Command) -> bool:
        """Whether an answer may stand on what is not on disk yet."""
        topic = request.ext.get("topic") or request.ext.get("b")
        if topic is not None and "group" not in request.ext:  # else it is what a group may read
            return self._topics.keep.is_unsaved(topic)
        return self._topics.keep.is_behind or self._groups.keep.is_behind

    async def _after(
        self, awaited: Awaitable[Answered], request: Command, before: tuple[int, DataVersion]
    ) -> Answered:
        answer = self._when_safe(await awaited, request, before)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _later(self, answer: Reply, safe: asyncio.Future[Any], *, is_told: bool) -> Reply:
        await self._saved()
        if not is_told:
            await self._outbound.heard()
        status = await asyncio.shield(safe)  # the store answers it, also when this is cancelled
        answer.durable = False
        if status:
            answer.code, answer.remark = self._failed(status)
        return answer

    async def _saved(self) -> None:
        """Wait for the disk; raises Reject when it refused."""
        await self._topics.keep.saved()
        await self._groups.keep.saved()


class Outbound:
    """Talks to the name servers. Belongs to the broker's loop."""

    def __init__(
        self,
        pool: ChannelPool,
        settings: BrokerSettings,
        name_servers: Sequence[str],
        topics: Callable[[], TopicTable],
    ) -> None:
        self._pool, self._settings, self._topics = pool, settings, topics
        self._name_servers = tuple(name_servers)
        self._address = ""
        self._is_changed, self._is_heard = asyncio.Event(), asyncio.Event()
        self._changes = self._heard = 0
        self._away: set[str] = set()
        self._left: set[str] = set()
        """Name servers that are no longer ours and have yet to hear it."""
        self.on_order_topics: Callable[[Iterable[str]], None] = lambda _topics: None
        """Called with the topics that a name server's order configuration names, if there are."""

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings
        if settings.namesrv_addrs != self._name_servers:
            self._left.update(self._name_servers)
            self._left.difference_update(settings.namesrv_addrs)
            self._name_servers = settings.namesrv_addrs
            self._away.clear()
            self.changed()

    def announce(self, address: str) -> None:
        """Say from now on that the broker is reached at `address`."""
        self._address = address

    def changed(self, _topic: str = "") -> None:
        """Register soon: the topics changed. Several changes of one tick make one registration."""
        self._changes += 1
        self._is_changed.set()

    async def heard(self, timeout_s: float = HEARD_S) -> bool:
        """Wait until the name servers know all changes made so far, `timeout_s` at most.

        False: none of them does.
        """
        wanted = self._changes
        try:
            async with asyncio.timeout(timeout_s):
                while self._name_servers and self._heard < wanted:
                    await self._is_heard.wait()
        except TimeoutError:
            return False
        return not self._away.issuperset(self._name_servers)

    async def run(self) -> None:
        """Register every period and after every change, for ever."""
        least_s, most_s = _PERIOD_S
        period_s = self._settings.register_name_server_period_ms / 1000
        while True:
            wait_s = AGAIN_S if self._away else min(max(period_s, least_s), most_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._is_changed.wait()
            except TimeoutError:
                pass
            await self.register()

    async def register(self) -> int:
        """Register with all name servers; returns how many heard it."""
        self._is_changed.clear()
        if self._left:
            left, self._left = self._left, set()
            await self._tell_all(self._farewell(), FAREWELL_S, left)
        changes, settings, told = self._changes, self._settings, self._name_servers
        known = 0
        if not settings.force_register and self._heard >= changes:
            news = await asyncio.gather(*(self._is_news(addr) for addr in told))
            told = tuple(addr for addr, is_news in zip(told, news, strict=True) if is_news)
            known = news.count(False)
        timeout_s = settings.register_broker_timeout_ms / 1000
        count = known
        if told:
            count += await self._tell_all(await self._registration(), timeout_s, told)
        self._heard = max(self._heard, changes)
        self._is_heard.set()
        self._is_heard = asyncio.Event()
        return count

    async def _registration(self) -> Command:
        """The request that tells all topics; a large one is made in a thread."""
        settings, table = self._settings, self._topics()
        encode = deflate_registration if settings.compressed_register else encode_registration
        topics = Registration(table._replace(topics=dict(table.topics)), [])
        is_large = len(topics.table.topics) > AT_ONCE_MAX
        body = await asyncio.to_thread(encode, topics) if is_large else encode(topics)
        header = RegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            ha_server_addr=self._address,
            broker_id=settings.broker_id,
            compressed=settings.compressed_register,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, 0, header, body)

    async def _is_news(self, addr: str) -> bool:
        """Whether a name server knows other topics than ours, or does not say (322)."""
        settings = self._settings
        header = QueryDataVersionRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=settings.broker_id,
        )
        body = encode_data_version(self._topics().version)
        command = request(RequestCode.QUERY_DATA_VERSION, 0, header, body)
        try:
            channel = await self._pool.channel(addr)
            answer = await channel.call(command, settings.register_broker_timeout_ms / 1000)
        except CometError:
            return True
        return answer.code != 0 or answer.ext.get("changed") != "false"

    @property
    def broker_name(self) -> str:
        """The name this broker registers."""
        return self._settings.broker_name

    async def global_order_at(
        self, topics: Iterable[str], alone: Container[str] = ()
    ) -> Elsewhere | None:
        """A topic of these that another broker has in global order; one of `alone` in any.

        None when there is none. Who says nothing within `HEARD_S` is not asked about the others.
        """
        silent: set[str] = set()
        for topic in topics:
            header = GetTopicConfigRequestHeader(topic=topic)
            for addr, name in await self._brokers_of(topic, silent):
                ask = request(RequestCode.GET_TOPIC_CONFIG, 0, header)
                found = await self._ask(addr, ask, decode_topic_config, silent)
                if found is not None and (is_in_global_order(found) or topic in alone):
                    return Elsewhere(topic, name, is_in_global_order(found))
        return None

    async def _brokers_of(self, topic: str, silent: set[str]) -> list[tuple[str, str]]:
        """Address and name of the other brokers that have the topic, as a name server knows."""
        mine = self._settings.broker_name
        for addr in self._name_servers:
            ask = request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, GetRouteInfoRequestHeader(topic=topic)
            )
            route = await self._ask(addr, ask, decode_route, silent)
            if route is not None:
                found = [(each.master, each.broker_name) for each in route.broker_datas]
                return [(master, name) for master, name in found if master and name != mine]
        return []

    async def _ask(
        self, addr: str, ask: Command, read: Callable[[bytes], _T], silent: set[str]
    ) -> _T | None:
        """What somebody answers; None for a refusal, and for who is silent, now or before."""
        if addr in silent:
            return None
        try:
            async with asyncio.timeout(HEARD_S):
                channel = await self._pool.channel(addr)
                answer = await channel.call(ask, HEARD_S)
            return read(answer.body) if answer.code == 0 else None
        except (CometError, TimeoutError) as error:
            silent.add(addr)
            log.warning("%s does not say which topics are in global order: %s", addr, error)
            return None

    async def unregister(self) -> int:
        """Say farewell to all name servers; returns how many heard it."""
        return await self._tell_all(self._farewell(), FAREWELL_S, self._name_servers)

    def _farewell(self) -> Command:
        settings = self._settings
        header = UnRegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=settings.broker_id,
        )
        return request(RequestCode.UNREGISTER_BROKER, 0, header)

    async def _tell_all(self, command: Command, timeout_s: float, addrs: Iterable[str]) -> int:
        heard = await asyncio.gather(*(self._tell(addr, command, timeout_s) for addr in addrs))
        return sum(heard)

    async def _tell(self, addr: str, command: Command, timeout_s: float) -> bool:
        try:
            channel = await self._pool.channel(addr)
            again = request(command.code, 0, None, command.body)
            again.ext = dict(command.ext)
            answer = await channel.call(again, timeout_s)
        except CometError as error:
            return self._failed(addr, str(error))
        if answer.code != 0:
            return self._failed(addr, f"it answered {answer.code}: {answer.remark}")
        if answer.body and command.code == RequestCode.REGISTER_BROKER:
            self._heed(addr, answer.body)
        if addr in self._away:
            self._away.discard(addr)
            log.info("the name server %s is back", addr)
        return True

    def _heed(self, addr: str, body: bytes) -> None:
        """Take over which topics are ordered."""
        try:
            names = decode_kv_table(body)
        except ProtocolError as error:
            log.warning("the name server %s tells no order configuration: %s", addr, error)
        else:
            self.on_order_topics(names)

    def _failed(self, addr: str, why: str) -> bool:
        if addr not in self._away:  # once, not with every period
            self._away.add(addr)
            log.warning("the name server %s did not take our registration: %s", addr, why)
        return False
