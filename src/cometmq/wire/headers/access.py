"""Headers of the requests about users and policies.

Java: CreateUserRequestHeader and others of remoting/protocol/header.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.wire.headers.base import Header


@dataclass(slots=True, kw_only=True)
class UserRequestHeader(Header):
    """Create (3001), change (3002), delete (3003) or show (3004) a user."""

    username: str | None = None


@dataclass(slots=True, kw_only=True)
class ListUsersRequestHeader(Header):
    """List the users whose names contain a text (3005)."""

    filter: str | None = None


@dataclass(slots=True, kw_only=True)
class AclRequestHeader(Header):
    """Add (3006), change (3007), delete (3008) or show (3009) the policies of a subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(slots=True, kw_only=True)
class ListAclsRequestHeader(Header):
    """List the policies of subjects and about resources that contain a text (3010)."""

    subject_filter: str | None = None
    resource_filter: str | None = None
