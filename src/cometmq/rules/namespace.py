"""Names of topics and groups with and without the namespace of an instance of a shared cluster.

Adds and removes the instance's name (RocketMQ's first kind of namespaces). Invariant: removing what
was added restores the name; names of RocketMQ itself, and names that have the prefix already, stay
as they are.
Java: NamespaceUtil
"""

from __future__ import annotations

import re

from cometmq.model.topic import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR = "%"
_instance = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*").fullmatch


def instance_of(addr: str) -> str | None:
    """The instance in the address of a name server, as cloud vendors write it; None for none."""
    found = _instance(addr)
    return found[1] if found else None


def with_namespace(namespace: str | None, name: str) -> str:
    """The name as brokers know it."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def without_namespace(namespace: str | None, name: str) -> str:
    """The name as users know it."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX))
