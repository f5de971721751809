"""The connections of one client id, shared by all clients that have it.

Owns the pools and the list of members; refuses to know what members send. Invariant: a broker sees
one connection a client id, with one heartbeat for all groups of its members; the last member that
leaves closes everything. Members belong to one loop.
Java: MQClientManager, MQClientInstance
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.errors import ClientError
from cometmq.model.subscription import HeartbeatData
from cometmq.net.channel_pool import ChannelPool
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.request_signature import add_signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.session.client_options import ClientOptions
    from cometmq.model.subscription import ConsumerData
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

_shared: dict[tuple[Any, ...], Connections] = {}
_FOR_ALL_MEMBERS = (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
"""Requests that concern a client id, not one group."""


class SharingClient(Protocol):
    """The session of a client, as the connections that it shares see it."""

    options: ClientOptions
    request_handlers: dict[int, Callable[[Command, Channel], None]]
    connection_lost_listeners: list[Callable[[str], None]]
    connection_made_listeners: list[Callable[[str], None]]

    def group_of(self, kind: str) -> str | None:
        """The group of the producer or of the consumer, or None."""

    def consumer(self) -> ConsumerData | None:
        """What heartbeats say of the consumer, or None."""


class Connections:
    """The pools of one client id on one loop. Made by `join`."""

    def __init__(self, key: tuple[Any, ...], options: ClientOptions, client_id: str) -> None:
        self._key = key
        self._client_id = client_id
        self._members: list[SharingClient] = []
        self.pending_replies: dict[str, asyncio.Future[Any]] = {}
        """Requests of all members that wait for replies: a reply is addressed to a client id."""
        prepare = _preparer(options)
        self.name_server_pool = ChannelPool(
            connect_timeout_s=options.connect_timeout_s, prepare=prepare, tls=options.tls
        )
        self.broker_pool = ChannelPool(
            connect_timeout_s=options.connect_timeout_s,
            on_request=self._on_request,
            greet=self._on_connection_made,
            on_lost=self._on_connection_lost,
            prepare=prepare,
            tls=options.tls,
        )

    @staticmethod
    def join(session: SharingClient, client_id: str) -> Connections:
        """The connections of the client id, with one member more."""
        options = session.options
        for left in [key for key in _shared if key[0].is_closed()]:
            del _shared[left]  # a client that was never stopped, on a loop that has ended
        key = (
            asyncio.get_running_loop(), client_id, options.namesrv, options.credentials,
            options.namespace_v2, options.tls,
        )  # fmt: skip
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Connections(key, options, client_id)
        assert session not in found._members, "a session joins once"
        found._members.append(session)
        return found

    def check_group(self, session: SharingClient, kind: str, group: str) -> None:
        """Raise ClientError, and remove the member, when another one has the group already."""
        for member in self._members:
            if member is not session and group == member.group_of(kind):
                self._drop(session)
                raise ClientError(
                    f"the group {group} has a {kind} of the instance {self._client_id} already; "
                    "use that one, or give one of them another instance_name"
                )

    async def leave(self, session: SharingClient) -> None:
        """Remove a member; the last one closes everything."""
        self._drop(session)
        if not self._members:
            self.broker_pool.begin_close()
            self.name_server_pool.begin_close()  # both before an await, which may be cancelled
            await asyncio.gather(self.broker_pool.close(), self.name_server_pool.close())

    def heartbeat(self) -> Command:
        """The heartbeat of all members, as one request."""
        data = HeartbeatData(
            client_id=self._client_id,
            producer_groups=tuple(
                group for member in self._members if (group := member.group_of("producer"))
            ),
            consumers=tuple(
                data for member in self._members if (data := member.consumer()) is not None
            ),
        )
        return request(RequestCode.HEART_BEAT, 0, body=encode_heartbeat(data))

    def _drop(self, session: SharingClient) -> None:
        if session in self._members:
            self._members.remove(session)
        if not self._members:
            _shared.pop(self._key, None)

    def _on_connection_made(self, channel: Channel) -> None:
        if any(m.group_of("producer") or m.group_of("consumer") for m in self._members):
            answer = channel.call_nowait(self.heartbeat())
            answer.add_done_callback(_retrieve_error)
        for member in list(self._members):
            for listener in member.connection_made_listeners:
                listener(channel.addr)

    def _on_connection_lost(self, addr: str) -> None:
        for member in list(self._members):
            for listener in member.connection_lost_listeners:
                listener(addr)

    def _on_request(self, command: Command, channel: Channel) -> None:
        handlers = [member for member in self._members if command.code in member.request_handlers]
        if len(handlers) > 1 and command.code not in _FOR_ALL_MEMBERS:
            group = command.ext.get("consumerGroup") or command.ext.get("group")
            of_group = [one for one in handlers if one.group_of("consumer") == group]
            handlers = (of_group or handlers)[:1]
        if not handlers:
            channel.refuse(command)
        for member in handlers:
            member.request_handlers[command.code](command, channel)


def _preparer(options: ClientOptions) -> Callable[[Command], None] | None:
    """What changes each request before it is written; None when nothing does."""
    namespace, credentials = options.namespace_v2, options.credentials
    if namespace is None and credentials is None:
        return None

    def prepare(command: Command) -> None:
        if namespace is not None:
            command.ext["nsd"], command.ext["ns"] = "true", namespace
        if credentials is not None:
            add_signature(command, credentials)

    return prepare


def _retrieve_error(answer: asyncio.Future[Command]) -> None:
    if not answer.cancelled():
        answer.exception()
