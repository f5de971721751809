"""The broker's registration with name servers: at the start, periodically, and its end.

Owns the registration (103) with every name server side by side, every period and at once after a
change of topics, the question before it (322, a setting), and its end (104). Refuses to know
topics' rules. A name server that cannot be reached is tried again with the next registration and
delays nobody.
Java: BrokerOuterAPI, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from cometmq.errors import CometError, ProtocolError
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.bodies.topic import (
    Registration,
    TopicTable,
    deflate_registration,
    encode_data_version,
    encode_registration,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cometmq.net.channel_pool import ChannelPool
    from cometmq.settings.broker import BrokerSettings
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)
_T = TypeVar("_T")

UNREGISTER_TIMEOUT_S = 3.0
"""How long a name server may take to answer when the broker leaves, seconds."""

REGISTERED_S = 1.0
"""How long an answer waits for name servers to know a topic that the request created, seconds."""

RETRY_S = 5.0
"""Time to the next try while a name server cannot be reached, seconds."""

ENCODE_ON_LOOP_MAX = 500
"""Topics whose registration is encoded on the loop: about 3 ms."""

_PERIOD_S = (10.0, 60.0)


class NamesrvRegistration:
    """Keeps this broker registered with its name servers. Belongs to the broker's loop."""

    def __init__(
        self,
        pool: ChannelPool,
        settings: BrokerSettings,
        name_servers: Sequence[str],
        topics: Callable[[], TopicTable],
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._topics = topics
        self._name_servers = tuple(name_servers)
        self._address = self._ha_address = ""
        self._is_changed = asyncio.Event()
        self._is_registered = asyncio.Event()
        self._changes = self._registered_changes = 0
        self._unreachable: set[str] = set()
        self._former: set[str] = set()
        """Name servers that were taken out of the settings and still have our registration."""
        self.on_order_topics: Callable[[Iterable[str]], None] = lambda _topics: None
        """Called with the topics that a name server's order configuration names, if any."""
        self.on_master: Callable[[RegisterBrokerResponseHeader], None] = lambda _master: None
        """Called with what a name server says of this slave's master."""

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings
        if settings.namesrv_addrs != self._name_servers:
            self._former.update(self._name_servers)
            self._former.difference_update(settings.namesrv_addrs)
            self._name_servers = settings.namesrv_addrs
            self._unreachable.clear()
            self.topics_changed()

    def set_address(self, address: str) -> None:
        """Register this address of the broker from now on."""
        self._address = address

    def set_ha_address(self, address: str) -> None:
        """Register this address of a master for its slaves from now on."""
        self._ha_address = address

    def topics_changed(self, _topic: str = "") -> None:
        """Wake the loop that registers the topics at all name servers."""
        self._changes += 1
        self._is_changed.set()

    async def wait_registered(self, timeout_s: float = REGISTERED_S) -> bool:
        """Wait until the name servers know all changes made so far, `timeout_s` at most.

        False: none of them does.
        """
        wanted = self._changes
        try:
            async with asyncio.timeout(timeout_s):
                while self._name_servers and self._registered_changes < wanted:
                    await self._is_registered.wait()
        except TimeoutError:
            return False
        return not self._unreachable.issuperset(self._name_servers)

    @property
    def is_known(self) -> bool:
        """Whether some name server took the last registration; true where none is asked."""
        names = self._name_servers
        return not names or not self._unreachable.issuperset(names)

    async def run(self) -> None:
        """Register every period and after every change, for ever."""
        least_s, most_s = _PERIOD_S
        while True:
            period_s = self._settings.register_name_server_period_ms / 1000
            wait_s = RETRY_S if self._unreachable else min(max(period_s, least_s), most_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._is_changed.wait()
            except TimeoutError:
                pass
            await self.register()

    async def register(self) -> int:
        """Register with all name servers; returns how many took the registration."""
        self._is_changed.clear()
        if self._former:
            left, self._former = self._former, set()
            await self._send_to_all(self._unregistration(), UNREGISTER_TIMEOUT_S, left)
        changes, settings, targets = self._changes, self._settings, self._name_servers
        known = 0
        if not settings.force_register and self._registered_changes >= changes:
            needed = await asyncio.gather(*(self._needs_registration(addr) for addr in targets))
            targets = tuple(
                addr for addr, is_needed in zip(targets, needed, strict=True) if is_needed
            )
            known = needed.count(False)
        timeout_s = settings.register_broker_timeout_ms / 1000
        count = known
        if targets:
            count += await self._send_to_all(await self._registration(), timeout_s, targets)
        self._registered_changes = max(self._registered_changes, changes)
        self._is_registered.set()
        self._is_registered = asyncio.Event()
        log.debug("%d name servers know this broker", count)
        return count

    async def _registration(self) -> Command:
        """The request with all topics; a large one is encoded in a thread."""
        settings, table = self._settings, self._topics()
        encode = deflate_registration if settings.compressed_register else encode_registration
        topics = Registration(table._replace(topics=dict(table.topics)), [])
        is_large = len(topics.table.topics) > ENCODE_ON_LOOP_MAX
        body = await asyncio.to_thread(encode, topics) if is_large else encode(topics)
        header = RegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            ha_server_addr=self._ha_address or self._address,
            broker_id=settings.broker_id,
            compressed=settings.compressed_register,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, 0, header, body)

    async def _needs_registration(self, addr: str) -> bool:
        """Whether a name server knows other topics than ours, or does not answer (322)."""
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
    def name_servers(self) -> tuple[str, ...]:
        """The name servers that this broker registers with."""
        return self._name_servers

    async def unregister(self) -> int:
        """Take the registration back from all name servers; returns how many answered."""
        return await self._send_to_all(
            self._unregistration(), UNREGISTER_TIMEOUT_S, self._name_servers
        )

    def _unregistration(self) -> Command:
        settings = self._settings
        header = UnRegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=settings.broker_id,
        )
        return request(RequestCode.UNREGISTER_BROKER, 0, header)

    async def _send_to_all(self, command: Command, timeout_s: float, addrs: Iterable[str]) -> int:
        reached = await asyncio.gather(*(self._send(addr, command, timeout_s) for addr in addrs))
        return sum(reached)

    async def _send(self, addr: str, command: Command, timeout_s: float) -> bool:
        try:
            channel = await self._pool.channel(addr)
            again = request(command.code, 0, None, command.body)
            again.ext = dict(command.ext)
            answer = await channel.call(again, timeout_s)
        except CometError as error:
            return self._note_failure(addr, str(error))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            why = "it is no name server but perhaps a broker; a name server's usual port is 9876"
            return self._note_failure(addr, f"{why} ({answer.remark})")
        if answer.code != 0:
            return self._note_failure(addr, f"it answered {answer.code}: {answer.remark}")
        if command.code == RequestCode.REGISTER_BROKER:
            if answer.body:
                self._apply_order_topics(addr, answer.body)
            self.on_master(RegisterBrokerResponseHeader.decode(answer.ext))
        if addr in self._unreachable:
            self._unreachable.discard(addr)
            log.info("the name server %s is back", addr)
        return True

    def _apply_order_topics(self, addr: str, body: bytes) -> None:
        """Take over which topics a name server calls ordered."""
        try:
            names = decode_kv_table(body)
        except ProtocolError as error:
            log.warning("the name server %s returned no order configuration: %s", addr, error)
        else:
            self.on_order_topics(names)

    def _note_failure(self, addr: str, why: str) -> bool:
        if addr not in self._unreachable:  # once, not with every period
            self._unreachable.add(addr)
            log.warning("the name server %s did not take our registration: %s", addr, why)
        return False
