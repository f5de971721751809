"""What every client has: connections, routes, heartbeats, handlers of requests from brokers.

Owns the construction of these parts and their start and stop order; refuses to know messages.
Invariant: a heartbeat is the first request on every new connection, so a broker knows the groups
before their first pull.
Java: MQClientInstance, ClientRemotingProcessor
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, TypeVar

from cometmq.client.session import client_identity as identity
from cometmq.client.session.connections import Connections
from cometmq.client.session.name_servers import NameServers
from cometmq.client.session.routes import Routes
from cometmq.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    NotStarted,
    RemotingError,
    RemotingTimeout,
)
from cometmq.net.address import split_address
from cometmq.runtime.background import BackgroundTasks
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.client.session.client_options import ClientOptions
    from cometmq.model.subscription import ConsumerData
    from cometmq.net.channel import Channel
    from cometmq.runtime.clock_and_file_protocols import Clock
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)
T = TypeVar("T")


class ClientSession:
    """The session of one client with its cluster. Belongs to the loop it was made on."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.ip = identity.local_ip(split_address(options.namesrv[0]))
        self.client_id = identity.client_id(self.ip, options.instance_name, options.unit_name)
        self.uniq_keys = identity.uniq_keys(self.ip)
        self._connections = Connections.join(self, self.client_id)
        self.name_servers = NameServers(
            options.namesrv,
            self._connections.name_server_pool,
            options.call_timeout_s,
            first=os.getpid(),
            namespace=options.namespace,
        )
        self.routes = Routes(self.name_servers)
        self.pool = self._connections.broker_pool
        self.pending_replies = self._connections.pending_replies
        """Requests that wait for their replies, by correlation id."""
        self.request_handlers: dict[int, Callable[[Command, Channel], None]] = {}
        """The handlers of brokers' requests, by code; other codes are refused."""
        self.connection_lost_listeners: list[Callable[[str], None]] = []
        self.connection_made_listeners: list[Callable[[str], None]] = []
        self.is_stopped = False
        self._producer_group: str | None = None
        self._consumer: Callable[[], ConsumerData] | None = None
        self._refused: dict[str, str] = {}
        self.background = BackgroundTasks(self.client_id)

    def start(self) -> None:
        """Begin to refresh routes and to send heartbeats."""
        options = self.options
        self.background.every(options.route_refresh_s, self.routes.refresh, name="routes")
        self.background.every(options.heartbeat_s, self.heartbeat, name="heartbeat")

    async def warn_unless_routed(self, group: str) -> None:
        """Log what keeps a producer from finding brokers: no name server answers, or knows one."""
        if problem := await self.name_servers.problem():
            log.warning("the producer of the group %s cannot send yet: %s", group, problem)

    def register_producer(self, group: str) -> None:
        """Name the producer group in heartbeats from now on.

        Raises ClientError when another client of the same instance has it.
        """
        self._connections.check_group(self, "producer", group)
        self._producer_group = group

    def register_consumer(self, data: Callable[[], ConsumerData]) -> None:
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
        """Send a request and return the response, whatever its code. Raises RemotingError."""
        left_s = timeout_s or self.options.call_timeout_s
        channel = self.pool.open_channel(addr)
        if channel is None:
            channel, left_s = await self._connect(addr, left_s)
        return await channel.call(command, left_s)

    async def open_channel(self, addr: str) -> Channel:
        """The connection to a broker, made now if need be.

        Raises ConnectFailed, which names the broker that gave out the address.
        """
        try:
            return await self.pool.channel(addr)
        except ConnectFailed as error:
            names = ", ".join(sorted(self.routes.broker_names_at(addr)))
            if not names:
                raise
            raise ConnectFailed(
                f"{error}; it is the address that the broker {names} gives to clients, by its "
                "brokerIP1 and listenPort"
            ) from error

    async def fetch(
        self,
        addr: str,
        command: Command,
        timeout_s: float,
        read: Callable[[Command, memoryview], T],
    ) -> T:
        """Send a request and return what `read` makes of the response (see `Channel.fetch`)."""
        channel = self.pool.open_channel(addr)
        if channel is None:
            channel, timeout_s = await self._connect(addr, timeout_s)
        return await channel.call_with_reader(command, timeout_s, read)

    async def call_checked(
        self, addr: str, command: Command, timeout_s: float | None = None
    ) -> Command:
        """Send a request and return the response; raises BrokerError unless it is SUCCESS."""
        answer = await self.call(addr, command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, addr)
        return answer

    async def heartbeat(self) -> None:
        """Send every broker in use a heartbeat; brokers that do not answer are logged."""
        addrs = self.routes.broker_addrs(masters_only=self._consumer is None)
        await asyncio.gather(*(self._heartbeat_to(addr) for addr in addrs))

    async def stop(self) -> None:
        """Unregister from all brokers; the last client of an instance closes its connections."""
        self.is_stopped = True
        try:
            await self.background.stop()
            await asyncio.gather(*map(self._unregister, self.pool.open_channels()))
        finally:  # also when the caller is cancelled
            await self._connections.leave(self)

    async def channel(self, addr: str, timeout_s: float) -> tuple[Channel, float]:
        """The connection to a broker, made if need be, and the seconds left. Raises RemotingError.

        For those whose work ends with the very connection on which they asked for it.
        """
        found = self.pool.open_channel(addr)
        return await self._connect(addr, timeout_s) if found is None else (found, timeout_s)

    async def _connect(self, addr: str, timeout_s: float) -> tuple[Channel, float]:
        """A new connection, and the seconds that are left."""
        begun = asyncio.get_running_loop().time()
        channel = await before_deadline(begun + timeout_s, self.open_channel(addr), addr)
        return channel, timeout_s - (asyncio.get_running_loop().time() - begun)

    async def _heartbeat_to(self, addr: str) -> None:
        try:
            await self.call_checked(addr, self._connections.heartbeat())
        except BrokerError as error:  # it refuses us, and will until somebody changes something
            if self._refused.get(addr) != str(error):
                self._refused[addr] = str(error)
                log.warning("no heartbeat to %s: %s", addr, error)
        except RemotingError as error:
            log.warning("no heartbeat to %s: %s", addr, error)
        else:
            self._refused.pop(addr, None)

    async def _unregister(self, channel: Channel) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self._producer_group,
            consumer_group=self.group_of("consumer"),
        )
        try:
            await channel.call(request(RequestCode.UNREGISTER_CLIENT, 0, header), 1.0)
        except RemotingError as error:
            log.debug("%s was not unregistered from: %s", channel.addr, error)


async def before_deadline(deadline: float, work: Awaitable[T], what: str) -> T:
    """Wait for something until the loop's time is `deadline`; raises RemotingTimeout then."""
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError as error:
        if isinstance(error, RemotingTimeout):
            raise
        raise RemotingTimeout(f"{what} took all the time given for the call") from None


def require_not_started(running: object, what: str) -> None:
    """Raise ClientError for a second start."""
    if running is not None:
        raise ClientError(
            f"this {what} is started already: 'with' starts it, and so does start(); do it once"
        )


def require_started(session: ClientSession | None, what: str) -> ClientSession:
    """The session of a started client; raises NotStarted otherwise."""
    if session is None:
        raise NotStarted(f"this {what} is not running: use it inside 'with', or call start()")
    return session
