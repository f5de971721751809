"""Accounts of ACL 1.0 as access rules: each becomes a user with policies.

What plain_acl.yml says by topic and group stands before its defaults, as a name stands before all
of a type. An account that is `admin` is a super user. Pure: the file is read elsewhere.
Java: PlainPermissionManager, Permission, PlainAccessResource of the former module acl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cometmq.errors import SettingsError
from cometmq.model.access import (
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
)
from cometmq.model.topic import TRACE_TOPIC
from cometmq.rules.access.access_rules import AccessRules
from cometmq.rules.access.addresses import is_range

_TOP = frozenset({"accounts", "globalWhiteRemoteAddresses", "dataVersion"})
_ACCOUNT = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)
_PERMS: dict[str, tuple[Action, ...]] = {
    "DENY": (),
    "PUB": (Action.PUB, Action.GET),
    "SUB": (Action.SUB, Action.GET),
    "PUB|SUB": (Action.PUB, Action.SUB, Action.GET),
    "SUB|PUB": (Action.PUB, Action.SUB, Action.GET),
}


def rules_of_accounts(found: object) -> AccessRules:
    """Read what plain_acl.yml holds, every scalar a text; raises SettingsError, without secrets."""
    top = _mapping(found, "the file", _TOP)
    users: dict[str, User] = {}
    acls: dict[str, Acl] = {}
    trusted: dict[str, str] = {}
    for number, one in enumerate(_list(top, "accounts", "the file"), 1):
        account = _mapping(one, f"account {number}", _ACCOUNT)
        name, secret = _text(account, "accessKey"), _text(account, "secretKey")
        if not name or not secret:
            raise SettingsError(f"account {number} needs an accessKey and a secretKey")
        if name in users:
            raise SettingsError(f"two accounts have the accessKey {name}")
        where = f"the account {name}"
        users[name] = User(name, secret, is_super=_flag(account, "admin", where))
        acls[name] = Acl(name, {PolicyType.CUSTOM: tuple(_entries(account, where))})
        white = account.get("whiteRemoteAddress") or ""
        trusted[name] = _range(white, f"whiteRemoteAddress of {where}")
    if not users:
        raise SettingsError("it has no accounts")
    addresses = _list(top, "globalWhiteRemoteAddresses", "the file")
    open_addresses = tuple(_range(one, "globalWhiteRemoteAddresses") for one in addresses)
    return AccessRules(users, acls, open_addresses, trusted)


def _entries(account: Mapping[str, Any], where: str) -> list[PolicyEntry]:
    found = [_entry(Resource(ResourceType.CLUSTER, "", ResourcePattern.ANY), (Action.LIST,))]
    for kind, key in ((ResourceType.TOPIC, "Topic"), (ResourceType.GROUP, "Group")):
        text = account.get(f"default{key}Perm") or "DENY"
        actions = _actions(text, f"default{key}Perm of {where}")
        found.append(_entry(Resource(kind, "", ResourcePattern.ANY), actions))
        named = f"{key.lower()}Perms"
        for one in _list(account, named, where):
            text = _scalar(one, f"{named} of {where}")
            name, equals, perm = text.partition("=")
            if not equals or not name.strip():
                raise SettingsError(f"{named} of {where} has {text!r}; write NAME=PERMISSION")
            actions = _actions(perm, f"{named} of {where}")
            found.append(_entry(Resource(kind, name.strip()), actions))
    trace = Resource(ResourceType.TOPIC, TRACE_TOPIC)
    if all(entry.resource != trace for entry in found):  # traces are free for all
        found.append(_entry(trace, (Action.PUB,)))
    return found


def _entry(resource: Resource, actions: tuple[Action, ...]) -> PolicyEntry:
    if not actions:
        return PolicyEntry(resource, (Action.ALL,), Decision.DENY)
    return PolicyEntry(resource, actions)


def _actions(found: object, where: str) -> tuple[Action, ...]:
    text = _scalar(found, where)
    perm = text.strip().upper().replace(" ", "")
    if perm not in _PERMS:
        raise SettingsError(f"{where}: {text!r} is none of DENY, PUB, SUB, PUB|SUB")
    return _PERMS[perm]


def _range(found: object, where: str) -> str:
    text = _scalar(found, where)
    if not is_range(text):
        raise SettingsError(f"{where}: {text!r} is no address, as in 10.0.0.7 or 10.0.*.*")
    return text


def _flag(account: Mapping[str, Any], key: str, where: str) -> bool:
    text = _scalar(account.get(key) or "false", f"{key} of {where}").lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{key} of {where} must be true or false")
    return text == "true"


def _text(account: Mapping[str, Any], key: str) -> str:
    value = account.get(key)
    return value.strip() if isinstance(value, str) else ""


def _scalar(found: object, where: str) -> str:
    """A text. Anything else is not shown: aliases in YAML make a short list unfold without end."""
    if not isinstance(found, str):
        raise SettingsError(f"{where} is no text")
    return found


def _mapping(found: object, where: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise SettingsError(f"{where} is no mapping of keys to values")
    for key in found:
        if key not in known:
            raise SettingsError(f"{where} has the unknown key {key}; known: {sorted(known)}")
    return found


def _list(found: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise SettingsError(f"{key} of {where} is no list")
    return value
