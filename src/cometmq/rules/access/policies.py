"""Which entry of a user's policies decides about a request: the most specific that matches.

A name before a prefix, a longer prefix before a shorter one, a prefix before all of a type, and
those before `*`; among equals one that allows. Without a match nothing is allowed.
Java: AclAuthorizationHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.access import Action, Decision, PolicyType, ResourcePattern, ResourceType
from cometmq.rules.access.addresses import is_in_network
from cometmq.rules.access.resource_names import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.model.access import Acl, PolicyEntry, Resource

_RANKS = {ResourcePattern.LITERAL: 0, ResourcePattern.PREFIXED: 1, ResourcePattern.ANY: 2}


def deciding_entry(
    acl: Acl, resource: Resource, actions: Iterable[Action], address: str
) -> PolicyEntry | None:
    """The entry that decides whether one of these actions is allowed; None: no entry matches.

    `address` is the IP address that the request comes from.
    """
    wanted = frozenset(actions) | {Action.ALL}
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        found = [
            entry
            for entry in acl.policies.get(kind, ())
            if matches(entry.resource, resource)
            and not wanted.isdisjoint(entry.actions)
            and _is_from(address, entry.source_ips)
        ]
        if found:
            return min(found, key=_rank)
    return None


def _is_from(address: str, networks: Sequence[str]) -> bool:
    return not networks or any(is_in_network(address, network) for network in networks)


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    kind, name, pattern = entry.resource
    length = len(name) if pattern is ResourcePattern.PREFIXED else 0
    return kind is ResourceType.ANY, _RANKS[pattern], -length, entry.decision is Decision.DENY


def merged(
    before: Sequence[PolicyEntry], changes: Iterable[PolicyEntry]
) -> tuple[PolicyEntry, ...]:
    """The entries with changes: one for a resource that has an entry replaces the first of those.

    Java: Policy.updateEntry.
    """
    after = list(before)
    for change in changes:
        at = next((at for at, one in enumerate(after) if one.resource == change.resource), None)
        if at is None:
            after.append(change)
        else:
            after[at] = change
    return tuple(after)
