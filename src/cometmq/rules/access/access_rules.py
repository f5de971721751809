"""All users and policies in force at a moment, and what follows from them. Pure.

Two questions, in this order: is the request signed by a user, and may this user do it from there.
Java: DefaultAuthenticationHandler, UserAuthorizationHandler, AclAuthorizationHandler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.model.access import Decision
from cometmq.rules.access.addresses import is_in_range
from cometmq.rules.access.policies import deciding_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cometmq.model.access import Acl, Action, Resource, User


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Never changed in place: a change makes another one."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)
    """By user."""
    open_addresses: tuple[str, ...] = ()
    """ACL 1.0: whoever asks from one of these ranges needs no keys and may do everything."""
    trusted_addresses: Mapping[str, str] = field(default_factory=dict)
    """ACL 1.0: ranges by user; from there the access key alone is enough for everything."""

    def is_open_to(self, address: str) -> bool:
        """Whether requests from this IP address are not looked at."""
        return any(is_in_range(address, one) for one in self.open_addresses)

    def is_trusted(self, username: str, address: str) -> bool:
        """Whether this user's requests from this IP address are not looked at further."""
        return is_in_range(address, self.trusted_addresses.get(username, ""))

    @property
    def has_super_user(self) -> bool:
        """Whether anybody may administer the users."""
        return any(user.is_super and user.is_enabled for user in self.users.values())

    def denial(
        self, user: User, resource: Resource, actions: Iterable[Action], address: str
    ) -> str | None:
        """Why the user may do none of these actions with a resource; None: one is allowed."""
        if user.is_super:
            return None
        acl = self.acls.get(user.username)
        entry = None if acl is None else deciding_entry(acl, resource, actions, address)
        if entry is not None and entry.decision is Decision.ALLOW:
            return None
        reason = "no matched policies." if entry is None else "the decision is deny."
        return (
            f"User:{user.username} has no permission to access {resource} from {address}, {reason}"
        )
