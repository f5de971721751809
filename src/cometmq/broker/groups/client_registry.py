"""The connected producers and consumers by group, with their subscriptions.

Owns the tables of connections and subscriptions. A client is identified by its connection, not by
its id: a reconnect briefly gives two connections with one id. `on_members` is called when the
members of a group change.
Invariant: a closed connection is in no table.
Java: ConsumerManager, ConsumerGroupInfo, ProducerManager, ClientHousekeepingService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.model.subscription import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.rules.group_members import settings_in_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.rules.group_members import MemberSettings

log = logging.getLogger(__name__)

SILENCE_MS = 120_000
"""A client that sends no heartbeat for so long is removed and its connection closed."""

GROUPS_PER_PEER_MAX = 1_000
"""Groups one connection may belong to; further groups of its heartbeats are ignored."""

KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Memory of what all heartbeats said; groups of those that exceed it are ignored."""

_MEMBER_BYTES, _CHAR_BYTES = 600, 8
"""What a member keeps, and what it keeps for each character of its subscriptions: both about."""


_JOINS, _LEAVES = "%s at %s joins the %s group %s", "%s at %s leaves the %s group %s"


class Member(NamedTuple):
    """One connection of a group, as of its last heartbeat.

    `seen_ms` is when that came by the wall clock, to be shown; `heard_ms` by the monotonic one.
    """

    client_id: str
    language: int
    version: int
    seen_ms: int
    heard_ms: int
    settings: MemberSettings | None = None
    """What a consumer's last whole heartbeat said."""


class ConsumerGroupInfo:
    """The members and the subscriptions of one consumer group."""

    __slots__ = (
        "consume_from_where",
        "consume_type",
        "fingerprint",
        "members",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Connection, Member] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.fingerprint: int | None = None
        """The subscription fingerprint of the last heartbeat; 0 if it had none, None before."""

    def client_ids(self) -> list[str]:
        """The ids of the members, each once."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Connection | None:
        """The newest connection of a client."""
        found = [
            connection
            for connection, member in self.members.items()
            if member.client_id == client_id
        ]
        return found[-1] if found else None

    def subscribe(self, wanted: tuple[SubscriptionData, ...]) -> bool:
        """Take one heartbeat's subscriptions for the whole group; True when topics came or went.

        A known topic's subscription is replaced only by a higher version. Two members that want
        different topics overwrite each other, as with RocketMQ.
        """
        known, changed = self.subscriptions, False
        for subscription in wanted:
            old = known.get(subscription.topic)
            if old is None:
                changed = True
            elif subscription.sub_version <= old.sub_version:
                continue
            known[subscription.topic] = subscription
        named = {subscription.topic for subscription in wanted}
        for topic in [topic for topic in known if topic not in named]:
            del known[topic]
            changed = True
        return changed


class ClientRegistry:
    """All connected clients. Belongs to the broker's loop."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        silence_ms: int = SILENCE_MS,
    ) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self.silence_ms = silence_ms
        self._events = RateLimitedLog(log)
        self.consumers: dict[str, ConsumerGroupInfo] = {}
        self.producers: dict[str, dict[Connection, Member]] = {}
        self._producer_ids: dict[str, dict[Connection, int]] = {}
        """Of each producer's id its connections, the one heard last at the end, with how many
        groups they are in under this id."""
        self._groups_of: dict[Connection, dict[tuple[str, str], int]] = {}
        """The groups of each connection, and what it keeps in each, bytes."""
        self.kept_bytes = 0
        """Memory of all members, about."""
        self._refused: set[str] = set()
        """The bounds at which groups were ignored, as far as the log says so."""
        self.on_members: Callable[[str], None] = lambda _group: None
        """Called with the group's name when its members or topics changed."""
        self.on_gone: Callable[[str], None] = lambda _group: None
        """Called with the name of a consumer group that has lost its last member."""

    def add_producer(self, group: str, client_id: str, connection: Connection) -> None:
        """Note a producer's heartbeat."""
        if not self._note(connection, ("producer", group), _MEMBER_BYTES):
            return
        members = self.producers.setdefault(group, {})
        if (before := members.get(connection)) is not None:
            self._forget_id(before.client_id, connection)
        else:
            self._events.info(_JOINS, client_id, connection.addr, "producer", group)
        members[connection] = self._member(client_id, connection)
        connections = self._producer_ids.setdefault(client_id, {})
        connections[connection] = connections.pop(connection, 0) + 1

    def find_producer(self, client_id: str) -> Connection | None:
        """The connection heard last on which a client of this id is a producer."""
        return next(reversed(self._producer_ids.get(client_id, {})), None)

    def add_consumer(
        self,
        data: ConsumerData,
        client_id: str,
        connection: Connection,
        *,
        fingerprint: int = 0,
        keep_subscriptions: bool = False,
    ) -> None:
        """Note a consumer's heartbeat; calls `on_members` when connections or topics changed."""
        key = ("consumer", data.group_name)
        size = _size_of(data)
        if keep_subscriptions:
            size = self._groups_of.get(connection, {}).get(key, size)
        if not self._note(connection, key, size):
            return
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroupInfo(data.group_name)
        changed = connection not in group.members
        before = group.members.get(connection)
        known = before.settings if before else None
        settings = known if keep_subscriptions else settings_in_heartbeat(data)
        group.members[connection] = self._member(client_id, connection, settings)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = fingerprint
        if not keep_subscriptions and group.subscribe(data.subscriptions):
            changed = True
        if before is None:
            self._events.info(_JOINS, client_id, connection.addr, "consumer", data.group_name)
        if changed:
            self.on_members(data.group_name)

    def is_fingerprint_new(self, group: str, fingerprint: int, *, is_light: bool) -> bool:
        """Whether the group's last heartbeat had another subscription fingerprint.

        A heartbeat without one counts as 0. A light heartbeat, which has no subscriptions, is new
        when none came before: after a restart, say, the broker knows nothing of the group.
        """
        known = self.consumers.get(group)
        if known is None or known.fingerprint is None:
            return is_light
        return known.fingerprint != fingerprint

    def remove(self, kind: str, name: str, connection: Connection) -> None:
        """Remove a connection from a group ("producer" or "consumer"); calls `on_members`."""
        self._leave(connection, (kind, name))
        members = self._members(kind, name)
        member = members.pop(connection, None)
        if member is None:
            return
        self._events.info(_LEAVES, member.client_id, connection.addr, kind, name)
        if kind == "producer":
            self._forget_id(member.client_id, connection)
        if not members:
            self._forget_group(kind, name)
        if kind == "consumer":
            self.on_members(name)

    def sweep(self) -> list[Connection]:
        """Remove clients silent for too long; return their connections, to be closed.

        Calls `on_members` of their groups: others take over their queues at once.
        """
        oldest = self._monotonic_ms() - self.silence_ms
        silent = [
            (kind, name, connection)
            for connection, groups in self._groups_of.items()
            for kind, name in groups
            if self._members(kind, name)[connection].heard_ms < oldest
        ]
        for kind, name, connection in silent:
            self.remove(kind, name, connection)
        return list(dict.fromkeys(connection for _, _, connection in silent))

    def _forget_id(self, client_id: str, connection: Connection) -> None:
        """Note that a connection is in one producer group less under this client id."""
        connections = self._producer_ids[client_id]
        connections[connection] -= 1
        if not connections[connection]:
            del connections[connection]
        if not connections:
            del self._producer_ids[client_id]

    def _forget_group(self, kind: str, name: str) -> None:
        if kind == "producer":
            del self.producers[name]
        else:
            del self.consumers[name]
            self.on_gone(name)

    def _note(self, connection: Connection, key: tuple[str, str], size: int) -> bool:
        """Note that a connection is in a group, where it keeps so many bytes; False: it may not."""
        groups = self._groups_of.get(connection)
        if groups is None:
            groups = self._groups_of[connection] = {}
            connection.on_close(self._drop)
        more = size - groups.get(key, 0)
        if key not in groups and len(groups) >= GROUPS_PER_PEER_MAX:
            self._refuse(f"a connection is in {GROUPS_PER_PEER_MAX} groups", connection)
            return False
        if self.kept_bytes + more > KEPT_BYTES_MAX:
            self._refuse(f"heartbeats keep {KEPT_BYTES_MAX} bytes", connection)
            return False
        groups[key] = size
        self.kept_bytes += more
        return True

    def _leave(self, connection: Connection, key: tuple[str, str]) -> None:
        self.kept_bytes -= self._groups_of.get(connection, {}).pop(key, 0)
        assert self.kept_bytes >= 0, "a member has left twice"

    def _refuse(self, bound: str, connection: Connection) -> None:
        """Say, once for each bound, that a client's groups are ignored."""
        if bound not in self._refused:
            self._refused.add(bound)
            log.warning(
                "%s, and no more are taken: %s is the first whose groups are ignored; spread "
                "them over more clients or brokers",
                bound,
                connection.addr,
            )

    def _drop(self, connection: Connection) -> None:
        for kind, name in list(self._groups_of.get(connection, ())):
            self.remove(kind, name, connection)
        assert not self._groups_of.get(connection), "a closed connection is in no group"
        self._groups_of.pop(connection, None)

    def _members(self, kind: str, name: str) -> dict[Connection, Member]:
        if kind == "producer":
            return self.producers.get(name, {})
        group = self.consumers.get(name)
        return group.members if group else {}

    def _member(
        self, client_id: str, connection: Connection, settings: MemberSettings | None = None
    ) -> Member:
        now_ms, monotonic_ms = self._now_ms(), self._monotonic_ms()
        language, version = connection.language, connection.version
        return Member(client_id, language, version, now_ms, monotonic_ms, settings)


def _size_of(data: ConsumerData) -> int:
    """What a consumer's heartbeat keeps in memory, about."""
    chars = sum(
        len(one.topic) + len(one.sub_string) + sum(map(len, one.tags_set)) + 10 * len(one.tags_set)
        for one in data.subscriptions
    )
    return _MEMBER_BYTES * (1 + len(data.subscriptions)) + _CHAR_BYTES * chars
