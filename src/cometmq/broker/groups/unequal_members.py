"""Members of one group that differ in subscriptions or settings, noticed and logged once per pair.

Owns which pairs were reported. Compares what heartbeats say, and which members take queue locks
with which pull without ever having taken one. Refuses to decide what follows.
Java: none; there members that differ lose messages without a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.rules.group_members import (
    ADVICE,
    WHY,
    MemberSettings,
    difference,
    settings_in_heartbeat,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.pulls.pull_long_polling import HeldPulls
    from cometmq.model.subscription import ConsumerData
    from cometmq.net.connection import Connection

log = logging.getLogger(__name__)

PAIRS_MAX = 10_000
"""Pairs remembered; beyond it all are forgotten, and may be reported again."""

COMPARED_MAX = 4
"""Members with settings of their own that one heartbeat is compared with."""

LOCK_GROUPS_MAX = 1_000
"""Groups of one connection that are noted as locking; with more it is never reported."""

LOOK_MS = 10_000
"""How often a group's pulls are looked through at most."""

_IN_ORDER = MemberSettings(frozenset(), is_orderly=True)
_CONCURRENT = MemberSettings(frozenset(), is_orderly=False)


class UnequalMembers:
    """Compares the members of all groups. Belongs to the broker's loop."""

    def __init__(
        self, clients: ClientRegistry, held_pulls: HeldPulls, monotonic_ms: Callable[[], int]
    ) -> None:
        self._clients = clients
        self._held_pulls = held_pulls
        self._monotonic_ms = monotonic_ms
        self._looked_ms: dict[str, int] = {}
        self._reported: set[tuple[str, str, str]] = set()
        self._lockers: dict[Connection, set[str]] = {}

    def compare(self, data: ConsumerData, client_id: str, connection: Connection) -> str:
        """How a member's heartbeat differs from others' of its group; empty where it does not."""
        group = self._clients.consumers.get(data.group_name)
        if group is None:
            return ""
        settings, own = settings_in_heartbeat(data), group.members.get(connection)
        if own is not None and own.settings == settings:
            return ""  # the others were compared with it when they came
        seen, texts = {settings}, []
        for member in group.members.values():
            if member.settings in seen or member.settings is None or member.client_id == client_id:
                continue
            seen.add(member.settings)
            text = difference(client_id, settings, member.client_id, member.settings)
            self._report(data.group_name, client_id, member.client_id, text)
            texts.append(text)
            if len(texts) == COMPARED_MAX:
                break
        return texts[0] if texts else ""

    def note_lock(
        self, group_name: str, client_id: str, topics: Iterable[str], connection: Connection
    ) -> None:
        """Note that a member locks queues, and report one that reads the topics without locks."""
        groups = self._lockers.get(connection)
        if groups is None:
            groups = self._lockers[connection] = set()
            connection.on_close(self._forget)
        if len(groups) < LOCK_GROUPS_MAX:
            groups.add(group_name)
        group = self._clients.consumers.get(group_name)
        if group is None or len(group.members) < 2 or not self._is_time_to_look(group_name):
            return
        for topic in topics:
            for reader in self._held_pulls.readers(group_name, topic):
                member = group.members.get(reader)
                if member is None or member.client_id == client_id:
                    continue
                locking = self._lockers.get(reader, ())
                if group_name not in locking and len(locking) < LOCK_GROUPS_MAX:
                    text = difference(client_id, _IN_ORDER, member.client_id, _CONCURRENT)
                    self._report(group_name, client_id, member.client_id, text)

    def _is_time_to_look(self, group: str) -> bool:
        now_ms = self._monotonic_ms()
        if now_ms - self._looked_ms.get(group, -LOOK_MS) < LOOK_MS:
            return False
        if len(self._looked_ms) >= PAIRS_MAX:
            self._looked_ms.clear()
        self._looked_ms[group] = now_ms
        return True

    def _report(self, group: str, one: str, other: str, text: str) -> None:
        pair = (group, min(one, other), max(one, other))
        if pair in self._reported:
            return
        if len(self._reported) >= PAIRS_MAX:
            self._reported.clear()
        self._reported.add(pair)
        log.warning("two members of the group %s differ: %s: %s; %s", group, text, WHY, ADVICE)

    def _forget(self, connection: Connection) -> None:
        self._lockers.pop(connection, None)
