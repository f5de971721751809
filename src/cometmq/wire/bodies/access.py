"""Users and policies as JSON: bodies of 3001 to 3010, and what access.json holds.

A policy that makes no sense is a ProtocolError with RocketMQ's sentence for it.
Java: UserInfo, AclInfo, UserConverter, AclConverter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.errors import ProtocolError
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
from cometmq.wire import fastjson
from cometmq.wire.bodies.json_fields import load_request, object_of, text, text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import StrEnum
    from typing import TypeVar

    E = TypeVar("E", bound=StrEnum)

ANY_RESOURCE = Resource(ResourceType.ANY, pattern=ResourcePattern.ANY)
SUBJECT_PREFIX = "User:"
IS_OFF = "access control is off"
"""How the refusal of a server begins that has no users."""
_SUPER, _NORMAL = "Super", "Normal"
_ENABLED, _DISABLED = "enable", "disable"


class UserFields(NamedTuple):
    """What a request says about a user; None: nothing."""

    password: str | None = None
    is_super: bool | None = None
    is_enabled: bool | None = None

    def __repr__(self) -> str:
        """Return it without the password."""
        return f"UserFields(is_super={self.is_super}, is_enabled={self.is_enabled})"


def resource_of(key: str) -> Resource | None:
    """The resource that a policy's text means; None where its type is unknown."""
    if key == "*":
        return ANY_RESOURCE
    kind_text, _, name = key.partition(":")
    kind = member_of(ResourceType, kind_text)
    if kind is None:
        return None
    if kind is ResourceType.ANY or name == "*":
        return Resource(kind, pattern=ResourcePattern.ANY)
    if name.endswith("*"):
        return Resource(kind, name[:-1], ResourcePattern.PREFIXED)
    return Resource(kind, name)


def member_of(kind: type[E], word: str) -> E | None:
    """The member of an enumeration with this value, whatever its case; None: there is none."""
    wanted = word.lower()
    return next((each for each in kind if each.value.lower() == wanted), None)


def decode_user_fields(body: bytes) -> UserFields:
    """Read what a request to create or change a user says."""
    return _user_fields(load_request(body))


def encode_user_fields(fields: UserFields) -> bytes:
    """The body of a request to create or change a user."""
    named = {
        "password": fields.password,
        "userType": None if fields.is_super is None else _type_of(fields.is_super),
        "userStatus": None if fields.is_enabled is None else _status_of(fields.is_enabled),
    }
    return fastjson.dumps({key: value for key, value in named.items() if value is not None})


def user_object(user: User, *, shows_password: bool = True) -> dict[str, Any]:
    """A user as JSON has it."""
    password = {"password": user.password} if shows_password else {}
    return {
        "username": user.username,
        **password,
        "userType": _type_of(user.is_super),
        "userStatus": _status_of(user.is_enabled),
    }


def user_of(found: Mapping[str, Any]) -> User:
    """Read a user; one whose password is not shown has an empty one."""
    fields = _user_fields(found)
    return User(
        text(found, "username"),
        fields.password or "",
        is_super=bool(fields.is_super),
        is_enabled=fields.is_enabled is not False,
    )


def decode_user(body: bytes) -> User | None:
    """Read the answer to 3004; None: there is no such user."""
    return user_of(object_of(fastjson.loads(body))) if body else None


def decode_users(body: bytes) -> list[User]:
    """Read the answer to 3005."""
    return [user_of(object_of(one)) for one in _list_of(body)]


def encode_objects(objects: Iterable[Mapping[str, Any]]) -> bytes:
    """A list of users or policies; nothing at all where there is none, as RocketMQ does."""
    found = list(objects)
    return fastjson.dumps(found) if found else b""


def acl_object(acl: Acl) -> dict[str, Any]:
    """A user's policies as JSON has them."""
    return {
        "subject": SUBJECT_PREFIX + acl.username,
        "policies": [
            {"policyType": kind.value, "entries": [_entry_object(one) for one in entries]}
            for kind, entries in acl.policies.items()
            if entries
        ],
    }


def encode_acl(acl: Acl) -> bytes:
    """The body of a request to add policies."""
    return fastjson.dumps(acl_object(acl))


def decode_acl(body: bytes, username: str = "") -> Acl:
    """Read the policies in a request, those of `username` unless the body names another user."""
    return acl_of(load_request(body), username)


def decode_stored_acl(body: bytes) -> Acl | None:
    """Read the answer to 3009; None: the user has no policies."""
    return acl_of(object_of(fastjson.loads(body))) if body else None


def decode_acls(body: bytes) -> list[Acl]:
    """Read the answer to 3010."""
    return [acl_of(object_of(one)) for one in _list_of(body)]


def acl_of(found: Mapping[str, Any], username: str = "") -> Acl:
    """Read policies; raises ProtocolError for those that make no sense."""
    subject = text_or_none(found, "subject")
    owner = username if subject is None else username_of(subject)
    policies: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    for one in _objects(found.get("policies"), "policies"):
        kind_text = text_or_none(one, "policyType")
        kind = member_of(PolicyType, kind_text) if kind_text else PolicyType.CUSTOM
        if kind is None:
            raise ProtocolError("The policy type is illegal.")
        entries = tuple(_entry_of(each) for each in _objects(one.get("entries"), "entries"))
        policies[kind] = policies.get(kind, ()) + entries
    policies = {kind: entries for kind, entries in policies.items() if entries}
    return Acl(owner, policies)


def username_of(subject: str) -> str:
    """The name in a subject, User:name; raises ProtocolError for another kind of subject."""
    kind, _, name = subject.partition(":")
    if kind.lower() != "user" or not name:
        raise ProtocolError("The subject type is null.")
    return name


def _user_fields(found: Mapping[str, Any]) -> UserFields:
    kind, status = text_or_none(found, "userType"), text_or_none(found, "userStatus")
    return UserFields(
        text_or_none(found, "password"),
        None if not kind else _one_of(kind, _SUPER, _NORMAL, "userType"),
        None if not status else _one_of(status, _ENABLED, _DISABLED, "userStatus"),
    )


def _one_of(word: str, yes: str, no: str, what: str) -> bool:
    if word.lower() not in (yes.lower(), no.lower()):
        raise ProtocolError(f"{what} must be {yes} or {no}")
    return word.lower() == yes.lower()


def _type_of(is_super: bool) -> str:
    return _SUPER if is_super else _NORMAL


def _status_of(is_enabled: bool) -> str:
    return _ENABLED if is_enabled else _DISABLED


def _entry_of(found: Mapping[str, Any]) -> PolicyEntry:
    resource = resource_of(text(found, "resource"))
    if resource is None:
        raise ProtocolError("The resource is null.")
    actions = tuple(_action_of(word) for word in _words(found, "actions"))
    if not actions:
        raise ProtocolError("The actions is empty.")
    decision = member_of(Decision, text(found, "decision"))
    if decision is None:
        raise ProtocolError("The decision is null or illegal.")
    return PolicyEntry(resource, actions, decision, tuple(_words(found, "sourceIps")))


def _entry_object(entry: PolicyEntry) -> dict[str, Any]:
    source_ips = {"sourceIps": list(entry.source_ips)} if entry.source_ips else {}
    return {
        "resource": str(entry.resource),
        "actions": [action.value for action in entry.actions],
        **source_ips,
        "decision": entry.decision.value,
    }


def _action_of(word: str) -> Action:
    if word.lower() == "any":
        raise ProtocolError("The actions can not be Any.")
    found = member_of(Action, word)
    if found is None:
        raise ProtocolError(f"The action {word[:40]} is unknown.")
    return found


def _words(found: Mapping[str, Any], key: str) -> list[str]:
    words = found.get(key)
    if words is None:
        return []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ProtocolError(f"{key} in the body is no list of texts")
    return words


def _objects(found: object, what: str) -> list[Mapping[str, Any]]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise ProtocolError(f"{what} in the body is no list")
    return [object_of(one, f"one of {what}") for one in found]


def _list_of(body: bytes) -> list[Any]:
    found = fastjson.loads(body) if body else []
    if not isinstance(found, list):
        raise ProtocolError("the body is no list")
    return found
