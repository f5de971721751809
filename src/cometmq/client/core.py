"""What all clients share: connections, routes, heartbeats, and requests that brokers make.

Owns the putting together and the start and stop order; refuses to know messages. Invariant: a
broker hears a heartbeat first on every new connection, so it knows the groups before their pulls.
Java: MQClientInstance, ClientRemotingProcessor
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from cometmq.client import identity
from cometmq.client.name_servers import NameServers
from cometmq.client.routes import Routes
from cometmq.errors import BrokerError, NotStarted, RemotingError
from cometmq.model.subscription import HeartbeatData
from cometmq.net.channel import split_addr
from cometmq.net.pool import ChannelPool
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import UnregisterClientRequestHeader
from cometmq.wire.signature import add_signature
from cometmq.world.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.options import ClientOptions
    from cometmq.model.subscription import ConsumerData
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command
    from cometmq.world.ports import Clock

log = logging.getLogger(__name__)


class Core:
    """The shared part of one client. Belongs to the loop it was made on."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.ip = identity.local_ip(split_addr(options.namesrv[0]))
        self.client_id = identity.client_id(self.ip, options.instance_name, options.unit_name)
        self.uniq_keys = identity.uniq_keys(self.ip)
        prepare = _preparation(options)
        self._names_pool = ChannelPool(
            connect_timeout_s=options.connect_timeout_s, prepare=prepare, tls=options.tls
        )
        self.servers = NameServers(
            options.namesrv,
            self._names_pool,
            options.call_timeout_s,
            first=os.getpid(),
            namespace=options.namespace,
        )
        self.routes = Routes(self.servers)
        self.pool = ChannelPool(
            connect_timeout_s=options.connect_timeout_s,
            on_request=self._on_request,
            greet=self._greet,
            on_lost=self._on_lost,
            prepare=prepare,
            tls=options.tls,
        )
        self.answers: dict[int, Callable[[Command, Channel], None]] = {}
        """Who answers which request of a broker; the rest is refused."""
        self.lost_listeners: list[Callable[[str], None]] = []
        self.greet_listeners: list[Callable[[str], None]] = []
        self._producer_group: str | None = None
        self._consumer: Callable[[], ConsumerData] | None = None
        self.background = Background(self.client_id)

    def start(self) -> None:
        """Begin to refresh routes and to send heartbeats."""
        options = self.options
        self.background.every(options.route_refresh_s, self.routes.refresh, name="routes")
        self.background.every(options.heartbeat_s, self.heartbeat, name="heartbeat")

    def be_producer(self, group: str) -> None:
        """Name the producer group in heartbeats from now on."""
        self._producer_group = group

    def be_consumer(self, data: Callable[[], ConsumerData]) -> None:
        """Name the consumer group in heartbeats from now on."""
        self._consumer = data

    async def call(self, addr: str, command: Command, timeout_s: float | None = None) -> Command:
        """Ask a broker and return its answer, whatever its code. Raises RemotingError."""
        channel = await self.pool.channel(addr)
        return await channel.call(command, timeout_s or self.options.call_timeout_s)

    async def ask(self, addr: str, command: Command, timeout_s: float | None = None) -> Command:
        """Ask a broker and return its answer; raises BrokerError unless the code is SUCCESS."""
        answer = await self.call(addr, command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, addr)
        return answer

    async def heartbeat(self) -> None:
        """Tell every broker in use who is here; brokers that do not answer are logged."""
        addrs = self.routes.addrs(masters_only=self._consumer is None)
        await asyncio.gather(*(self._heartbeat_to(addr) for addr in addrs))

    async def stop(self) -> None:
        """Say goodbye to all brokers and close everything."""
        await self.background.stop()
        goodbye = [self._unregister(channel) for channel in self.pool.open_channels()]
        await asyncio.gather(*goodbye)
        await self.pool.close()
        await self._names_pool.close()

    def _heartbeat_command(self) -> Command:
        data = HeartbeatData(
            client_id=self.client_id,
            producer_groups=(self._producer_group,) if self._producer_group else (),
            consumers=(self._consumer(),) if self._consumer else (),
        )
        return request(RequestCode.HEART_BEAT, 0, body=encode_heartbeat(data))

    async def _heartbeat_to(self, addr: str) -> None:
        try:
            await self.ask(addr, self._heartbeat_command())
        except (RemotingError, BrokerError) as error:
            log.warning("no heartbeat to %s: %s", addr, error)

    def _greet(self, channel: Channel) -> None:
        if self._producer_group or self._consumer:
            answer = channel.call_nowait(self._heartbeat_command())
            answer.add_done_callback(_seen)
        for listener in self.greet_listeners:
            listener(channel.addr)

    def _on_lost(self, addr: str) -> None:
        for listener in self.lost_listeners:
            listener(addr)

    def _on_request(self, command: Command, channel: Channel) -> None:
        self.answers.get(command.code, _refuse)(command, channel)

    async def _unregister(self, channel: Channel) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self._producer_group,
            consumer_group=self._consumer().group_name if self._consumer else None,
        )
        try:
            await channel.call(request(RequestCode.UNREGISTER_CLIENT, 0, header), 1.0)
        except RemotingError as error:
            log.debug("no goodbye to %s: %s", channel.addr, error)


def _preparation(options: ClientOptions) -> Callable[[Command], None] | None:
    """What is done to each request before it is written; None when that is nothing."""
    namespace, credentials = options.namespace_v2, options.credentials
    if namespace is None and credentials is None:
        return None

    def prepare(command: Command) -> None:
        if namespace is not None:
            command.ext["nsd"], command.ext["ns"] = "true", namespace
        if credentials is not None:
            add_signature(command, credentials)

    return prepare


def _refuse(command: Command, channel: Channel) -> None:
    channel.refuse(command)


def _seen(answer: asyncio.Future[Command]) -> None:
    if not answer.cancelled():
        answer.exception()


def running(core: Core | None, what: str) -> Core:
    """The core of a started client; raises NotStarted otherwise."""
    if core is None:
        raise NotStarted(f"this {what} is not running: use it inside 'with', or call start()")
    return core
