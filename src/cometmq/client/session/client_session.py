"""What all clients share: connections, routes, heartbeats, and requests that brokers make.

Owns the putting together and the start and stop order; refuses to know messages. Invariant: a
broker hears a heartbeat first on every new connection, so it knows the groups before their pulls.
Java: MQClientInstance, ClientRemotingProcessor
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, TypeVar

from cometmq.client.session import identity
from cometmq.client.session.connections import Connections
from cometmq.client.session.name_servers import NameServers
from cometmq.client.session.routes import Routes
from cometmq.errors import BrokerError, NotStarted, RemotingError, RemotingTimeout
from cometmq.net.channel import split_addr
from cometmq.runtime.background import Background
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.client.session.client_options import ClientOptions
    from cometmq.model.subscription import ConsumerData
    from cometmq.net.channel import Channel
    from cometmq.runtime.ports import Clock
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)
T = TypeVar("T")


class Core:
    """The shared part of one client. Belongs to the loop it was made on."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.ip = identity.local_ip(split_addr(options.namesrv[0]))
        self.client_id = identity.client_id(self.ip, options.instance_name, options.unit_name)
        self.uniq_keys = identity.uniq_keys(self.ip)
        self._connections = Connections.join(self, self.client_id)
        self.servers = NameServers(
            options.namesrv,
            self._connections.names,
            options.call_timeout_s,
            first=os.getpid(),
            namespace=options.namespace,
        )
        self.routes = Routes(self.servers)
        self.pool = self._connections.brokers
        self.waiting = self._connections.waiting
        """Requests that wait for replies, by what they are told apart by."""
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
        """Name the producer group in heartbeats from now on.

        Raises ClientError when another client of the same instance has it.
        """
        self._connections.check_group(self, "producer", group)
        self._producer_group = group

    def be_consumer(self, data: Callable[[], ConsumerData]) -> None:
        """Name the consumer group in heartbeats from now on.

        Raises ClientError when another client of the same instance has it.
        """
        self._connections.check_group(self, "consumer", data().group_name)
        self._consumer = data

    def consumer(self) -> ConsumerData | None:
        """What heartbeats say of the consumer, or None."""
        return self._consumer() if self._consumer else None

    def group_of(self, kind: str) -> str | None:
        """The group of the producer or of the consumer, or None."""
        if kind == "producer":
            return self._producer_group
        return self._consumer().group_name if self._consumer else None

    async def call(self, addr: str, command: Command, timeout_s: float | None = None) -> Command:
        """Ask a broker and return its answer, whatever its code. Raises RemotingError."""
        patience_s = timeout_s or self.options.call_timeout_s
        channel = self.pool.open_channel(addr)
        if channel is None:
            channel, patience_s = await self._connected(addr, patience_s)
        return await channel.call(command, patience_s)

    async def fetch(
        self,
        addr: str,
        command: Command,
        timeout_s: float,
        read: Callable[[Command, memoryview], T],
    ) -> T:
        """Ask a broker and return what `read` makes of its answer (see `Channel.fetch`)."""
        channel = self.pool.open_channel(addr)
        if channel is None:
            channel, timeout_s = await self._connected(addr, timeout_s)
        return await channel.fetch(command, timeout_s, read)

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
        """Say goodbye to all brokers; the last client of an instance closes its connections."""
        try:
            await self.background.stop()
            goodbye = [self._unregister(channel) for channel in self.pool.open_channels()]
            await asyncio.gather(*goodbye)
        finally:  # also when whoever stops it is interrupted
            await self._connections.leave(self)

    async def _connected(self, addr: str, patience_s: float) -> tuple[Channel, float]:
        """A new connection, and what is left of the time."""
        begun = asyncio.get_running_loop().time()
        channel = await within(begun + patience_s, self.pool.channel(addr), addr)
        return channel, patience_s - (asyncio.get_running_loop().time() - begun)

    async def _heartbeat_to(self, addr: str) -> None:
        try:
            await self.ask(addr, self._connections.heartbeat())
        except (RemotingError, BrokerError) as error:
            log.warning("no heartbeat to %s: %s", addr, error)

    async def _unregister(self, channel: Channel) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self._producer_group,
            consumer_group=self.group_of("consumer"),
        )
        try:
            await channel.call(request(RequestCode.UNREGISTER_CLIENT, 0, header), 1.0)
        except RemotingError as error:
            log.debug("no goodbye to %s: %s", channel.addr, error)


async def within(deadline: float, work: Awaitable[T], what: str) -> T:
    """Wait for something until the loop's time is `deadline`; raises RemotingTimeout then."""
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError as error:
        if isinstance(error, RemotingTimeout):
            raise
        raise RemotingTimeout(f"{what} took all the time given for the call") from None


def running(core: Core | None, what: str) -> Core:
    """The core of a started client; raises NotStarted otherwise."""
    if core is None:
        raise NotStarted(f"this {what} is not running: use it inside 'with', or call start()")
    return core
