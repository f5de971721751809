"""The connections of one client id, shared by all clients that have it.

Owns the pools and who is a member; refuses to know what members say on them. Invariant: a broker
sees one connection a client id, with one heartbeat for all groups of its members; the last member
to leave closes everything. Members belong to one loop.
Java: MQClientManager, MQClientInstance
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
    from cometmq.client.session.client_session import Core
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

_shared: dict[tuple[Any, ...], Connections] = {}
_FOR_ALL = (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
"""What brokers ask of a client id, not of a group."""


class Connections:
    """The pools of one client id on one loop. Made by `join`."""

    def __init__(self, key: tuple[Any, ...], options: ClientOptions, client_id: str) -> None:
        self._key, self._client_id = key, client_id
        self._members: list[Core] = []
        self.waiting: dict[str, asyncio.Future[Any]] = {}
        """Requests that wait for replies, of all members: a reply comes to a client id."""
        prepare = _preparation(options)
        self.names = ChannelPool(
            connect_timeout_s=options.connect_timeout_s, prepare=prepare, tls=options.tls
        )
        self.brokers = ChannelPool(
            connect_timeout_s=options.connect_timeout_s,
            on_request=self._on_request,
            greet=self._greet,
            on_lost=self._on_lost,
            prepare=prepare,
            tls=options.tls,
        )

    @staticmethod
    def join(core: Core, client_id: str) -> Connections:
        """The connections of the client id, with one member more."""
        told = core.options
        for left in [key for key in _shared if key[0].is_closed()]:
            del _shared[left]  # a client that was never stopped, on a loop that has ended
        key = (
            asyncio.get_running_loop(), client_id, told.namesrv, told.credentials,
            told.namespace_v2, told.tls,
        )  # fmt: skip
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Connections(key, told, client_id)
        found._members.append(core)
        return found

    def check_group(self, core: Core, kind: str, group: str) -> None:
        """Raise ClientError, and let the member go, when another one has the group already."""
        for member in self._members:
            if member is not core and group == member.group_of(kind):
                self._drop(core)
                raise ClientError(
                    f"the group {group} has a {kind} of the instance {self._client_id} already; "
                    "use that one, or give one of them another instance_name"
                )

    async def leave(self, core: Core) -> None:
        """Have one member less; the last one closes everything."""
        self._drop(core)
        if not self._members:
            self.brokers.shut()
            self.names.shut()  # both at once: whoever waits for their end may be cancelled
            await asyncio.gather(self.brokers.close(), self.names.close())

    def heartbeat(self) -> Command:
        """What all members are, as one request."""
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

    def _drop(self, core: Core) -> None:
        if core in self._members:
            self._members.remove(core)
        if not self._members:
            _shared.pop(self._key, None)

    def _greet(self, channel: Channel) -> None:
        if any(m.group_of("producer") or m.group_of("consumer") for m in self._members):
            answer = channel.call_nowait(self.heartbeat())
            answer.add_done_callback(_seen)
        for member in list(self._members):
            for listener in member.greet_listeners:
                listener(channel.addr)

    def _on_lost(self, addr: str) -> None:
        for member in list(self._members):
            for listener in member.lost_listeners:
                listener(addr)

    def _on_request(self, command: Command, channel: Channel) -> None:
        able = [member for member in self._members if command.code in member.answers]
        if len(able) > 1 and command.code not in _FOR_ALL:
            group = command.ext.get("consumerGroup") or command.ext.get("group")
            able = [m for m in able if m.group_of("consumer") == group][:1] or able[:1]
        if not able:
            channel.refuse(command)
        for member in able:
            member.answers[command.code](command, channel)


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


def _seen(answer: asyncio.Future[Command]) -> None:
    if not answer.cancelled():
        answer.exception()
