"""Who may do what: users, resources, and the policies that allow or deny actions on them.

Values without behaviour; `rules/access` decides by them. Members keep RocketMQ's spelling.
Java: User, Acl, Policy, PolicyEntry, Resource, Action, Decision of the module auth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Action(StrEnum):
    """What is done with a resource; ALL stands for each of the others."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(StrEnum):
    """What kind of thing a resource is; ANY stands for things of all kinds."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class ResourcePattern(StrEnum):
    """How the name of a resource is meant."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Resource(NamedTuple):
    """A topic, a group or a cluster; in a policy also all whose names begin alike, or all."""

    type: ResourceType
    name: str = ""
    pattern: ResourcePattern = ResourcePattern.LITERAL

    def __str__(self) -> str:
        """Return it as policies write it: Topic:orders, Topic:orders*, Topic:* or *."""
        if self.type is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is ResourcePattern.LITERAL else "*"
        return f"{self.type}:{self.name}{star}"


class Decision(StrEnum):
    """What becomes of a request that an entry of a policy matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """CUSTOM policies are asked first, DEFAULT ones when no entry of those matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """What a user may or may not do with one resource, from everywhere or from some addresses."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision = Decision.ALLOW
    source_ips: tuple[str, ...] = ()
    """Addresses, or networks as in 10.0.0.0/8; none: everywhere."""


Policies = dict[PolicyType, tuple[PolicyEntry, ...]]


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one user."""

    username: str
    policies: Mapping[PolicyType, tuple[PolicyEntry, ...]]


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signs requests: the name is the access key, the password the secret key."""

    username: str
    password: str = field(repr=False)
    is_super: bool = False
    """Whether the user may do everything, without any policy."""
    is_enabled: bool = True
