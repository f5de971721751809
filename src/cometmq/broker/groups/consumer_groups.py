"""The consumer groups of this broker: their settings, creation, and topics they may not read.

Owns the table of groups and config/subscriptionGroup.json; a change counts at once and is on disk
before it is answered (`writer`). `client_registry` knows who is connected.
Invariant: the system groups always exist.
Java: SubscriptionGroupManager.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.cluster.table_writer import TableWriter
from cometmq.errors import Reject
from cometmq.model.group import SYSTEM_GROUPS, SubscriptionGroupConfig
from cometmq.model.topic import DataVersion
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.rules.name_validation import group_name_problem, topic_name_problem
from cometmq.store.json_file import JsonTable
from cometmq.wire.bodies.group import group_fields, group_table_of
from cometmq.wire.bodies.topic import version_fields
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.json_file import JsonFile
    from cometmq.wire.bodies.group import GroupTable

log = logging.getLogger(__name__)

FORBIDDEN_MAX = 100_000
"""Pairs of a group and a topic that it may not read."""

GROUPS_MAX = 200_000
"""Groups of one broker; beyond it none is created."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

_READ_FORBIDDEN = 1 << 2


class ConsumerGroups:
    """All groups by name. Reading is a dict lookup."""

    def __init__(
        self, file: JsonFile, now_ms: Callable[[], int], *, auto_create: bool = True
    ) -> None:
        self._now_ms = now_ms
        self.writer = TableWriter(file, "groups", self._snapshot)
        """When changes are on disk."""
        self.auto_create = auto_create
        """Whether first use makes a group."""
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()
        self._events = RateLimitedLog(log)
        self._entries = JsonTable("subscriptionGroupTable", group_fields)
        self._load(file.load("subscriptionGroupTable", group_table_of))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings, or None."""
        return self.table.get(group)

    def admit(self, group: str) -> SubscriptionGroupConfig:
        """The group's settings, created on first use where that is allowed.

        Raises Reject (SUBSCRIPTION_GROUP_NOT_EXIST).
        """
        return self.table.get(group) or self._create(group)

    def require_room(self, count: int) -> None:
        """Raise Reject where so many more groups would be more than `GROUPS_MAX`."""
        if len(self.table) + count > GROUPS_MAX:
            raise Reject(ResponseCode.SYSTEM_ERROR, self._too_many())

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a group."""
        before = self.table.get(config.group_name)
        if before != config:
            self.table[config.group_name] = config
            what = "made" if before is None else "changed"
            self._events.info("the group %s is %s", config.group_name, what)
            self._changed(config.group_name, partial(self._restore, config.group_name, before))

    def delete(self, group: str) -> bool:
        """Forget a group's settings; False when there were none."""
        before = self.table.pop(group, None)
        if before is None:
            return False
        forbidden = self.forbidden.pop(group, None)
        self._events.info("the group %s is deleted", group)
        self._changed(group, partial(self._restore, group, before, forbidden))
        return True

    def take_over(self, theirs: GroupTable) -> None:
        """Be what another broker's groups are, version included."""
        before = self.version, dict(self.table), dict(self.forbidden)
        if before != (theirs.version, theirs.groups, theirs.forbidden):
            self._set_all(*theirs)
            self.writer.record_change("", partial(self._set_all, *before))

    def _set_all(
        self,
        version: DataVersion,
        table: dict[str, SubscriptionGroupConfig],
        forbidden: dict[str, dict[str, int]],
    ) -> None:
        self.version = version
        self.table.clear()
        self.table.update(table)
        self.forbidden = dict(forbidden)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether the group may not read the topic."""
        return self.forbidden.get(group, {}).get(topic, 0) & _READ_FORBIDDEN != 0

    def forbid(self, group: str, topic: str, *, is_forbidden: bool) -> None:
        """Forbid a group to read a topic, or allow it again.

        Raises Reject for a name that none has, and beyond `FORBIDDEN_MAX` topics of all groups.
        """
        if problem := group_name_problem(group) or topic_name_problem(topic):
            raise Reject(ResponseCode.INVALID_PARAMETER, problem)
        before = self.forbidden.get(group, {})
        bits = before.get(topic, 0) & ~_READ_FORBIDDEN
        if is_forbidden:
            bits |= _READ_FORBIDDEN
        topics = {name: each for name, each in {**before, topic: bits}.items() if each}
        if topics == before:
            return
        if is_forbidden and sum(map(len, self.forbidden.values())) >= FORBIDDEN_MAX:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"{FORBIDDEN_MAX} topics are forbidden to groups already"
            )
        self._set_forbidden(group, topics)
        self._changed(group, partial(self._set_forbidden, group, before))

    def _set_forbidden(self, group: str, topics: dict[str, int]) -> None:
        if topics:
            self.forbidden[group] = topics
        else:
            self.forbidden.pop(group, None)

    def _snapshot(self) -> Callable[[], bytes]:
        before: dict[str, object] = {
            "dataVersion": version_fields(self.version),
            "forbiddenTable": dict(self.forbidden),
        }
        return partial(self._entries.encode, before, dict(self.table))

    def _create(self, group: str) -> SubscriptionGroupConfig:
        if not self.auto_create:
            raise missing(group)
        if problem := group_name_problem(group):
            raise missing(group, problem)
        if len(self.table) >= GROUPS_MAX:
            raise missing(group, self._too_many())
        config = SubscriptionGroupConfig(group_name=group)
        self.put(config)
        return config

    def _too_many(self) -> str:
        return (
            f"this broker has {len(self.table)} groups, the limit is {GROUPS_MAX}: delete those "
            "that nobody uses"
        )

    def _load(self, stored: GroupTable | None) -> None:
        if stored is not None:
            self.version, groups, self.forbidden = stored
            self.table.update(groups)
        for name in (*SYSTEM_GROUPS, TRANSACTION_GROUP):
            self.table.setdefault(name, SubscriptionGroupConfig(group_name=name))
        if stored is None:
            self.writer.write_now()  # from now on a missing file is a lost one

    def _changed(self, group: str, undo: Callable[[], None]) -> None:
        """Have a change written; `undo` reverts it when that fails, at once with a Reject."""
        self.version = self.version.next(self._now_ms())
        self.writer.record_change(group, undo)

    def _restore(
        self,
        group: str,
        before: SubscriptionGroupConfig | None,
        forbidden: dict[str, int] | None = None,
    ) -> None:
        self.version = self.version.next(self._now_ms())
        self.table.pop(group, None)
        if before is not None:
            self.table[group] = before
        if forbidden is not None:
            self.forbidden[group] = forbidden


def missing(group: str, why: str = "") -> Reject:
    """The refusal of a request that names an unknown group; `why` it is not made by first use."""
    remark = f"the group {group[:64]} does not exist on this broker"
    if why:
        remark += f" and is not made: {why}"
    return Reject(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
