"""The users and policies of one server (ACL 2.0): looked up, changed, and kept in access.json.

Owns what a change must keep: each policy has its user, a super user remains, and nothing is in
force before it is on disk. Refuses to know requests.
Java: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.access import Acl, PolicyType, User
from cometmq.rules.access.addresses import is_network
from cometmq.rules.access.policies import merged
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.access.access_file import AccessFile
    from cometmq.model.access import PolicyEntry, Resource
    from cometmq.rules.access.access_rules import AccessRules
    from cometmq.wire.bodies.access import UserFields

USERS_MAX = 10_000
NAME_CHARS_MAX = 255
ENTRIES_MAX = 1_000
"""Entries of one user's policies."""


class AccessDirectory:
    """Belongs to its server's loop. Refuses by Reject, NO_PERMISSION with RocketMQ's remark."""

    def __init__(
        self, rules: AccessRules, file: AccessFile, set_rules: Callable[[AccessRules], None]
    ) -> None:
        """`rules` are what `file` holds; `set_rules` puts others in force."""
        self._rules = rules
        self._file = file
        self._set_rules = set_rules
        self._changing = asyncio.Lock()

    def user(self, username: str) -> User | None:
        """The user of this name."""
        return self._rules.users.get(username)

    def users(self, part: str = "") -> list[User]:
        """The users whose names contain a text, sorted by name."""
        return [self._rules.users[name] for name in sorted(self._rules.users) if part in name]

    def acl(self, username: str) -> Acl | None:
        """The policies of a user, if there are any. Raises Reject for an unknown user."""
        if username not in self._rules.users:
            raise refusal("The subject is not exist.")
        return self._rules.acls.get(username)

    def acls(self, subject_part: str = "", resource_part: str = "") -> list[Acl]:
        """The policies of subjects that contain a text, about resources that contain another."""
        found = []
        for name in sorted(self._rules.acls):
            subject, acl = f"User:{name}", self._rules.acls[name]
            if subject_part not in subject:
                continue
            if resource_part and resource_part not in subject:
                acl = _about(acl, resource_part)
            if acl.policies:
                found.append(acl)
        return found

    async def create_user(self, username: str, fields: UserFields) -> None:
        """Add a user; raises Reject where there is one of this name."""
        if not fields.password or not fields.password.strip():
            raise refusal("password can not be blank")
        if len(username) > NAME_CHARS_MAX or not username.isprintable():
            raise refusal(f"a username has {NAME_CHARS_MAX} printable characters at most")
        is_super, is_enabled = bool(fields.is_super), fields.is_enabled is not False
        user = User(username, fields.password, is_super=is_super, is_enabled=is_enabled)
        async with self._changing:
            users = self._rules.users
            if username in users:
                raise refusal("The user is existed")
            if len(users) >= USERS_MAX:
                raise refusal(f"there are {USERS_MAX} users already; delete some")
            await self._keep(replace(self._rules, users={**users, username: user}))

    async def update_user(self, username: str, fields: UserFields, *, by_super: bool) -> None:
        """Change what is named of a user; of a super user only `by_super`."""
        async with self._changing:
            before = self._rules.users.get(username)
            if before is None:
                raise refusal("The user is not exist")
            _check_touches(before, by_super=by_super)
            after = User(
                username,
                fields.password if fields.password and fields.password.strip() else before.password,
                is_super=before.is_super if fields.is_super is None else fields.is_super,
                is_enabled=before.is_enabled if fields.is_enabled is None else fields.is_enabled,
            )
            users = {**self._rules.users, username: after}
            await self._keep(replace(self._rules, users=users))

    async def delete_user(self, username: str, *, by_super: bool) -> None:
        """Remove a user with all policies; nothing happens where there is none."""
        async with self._changing:
            if username in self._rules.users:
                _check_touches(self._rules.users[username], by_super=by_super)
                users, acls = dict(self._rules.users), dict(self._rules.acls)
                del users[username]
                acls.pop(username, None)
                await self._keep(replace(self._rules, users=users, acls=acls))

    async def add_policies(self, acl: Acl) -> None:
        """Add to the policies of a user; an entry replaces the one about the same resource."""
        if not acl.policies:
            raise refusal("The policies is empty.")
        for entries in acl.policies.values():
            _check_addresses(entries)
        async with self._changing:
            if acl.username not in self._rules.users:
                raise refusal(f"The subject of User:{acl.username} is not exist.")
            before = self._rules.acls.get(acl.username)
            policies = {} if before is None else dict(before.policies)
            for kind, entries in acl.policies.items():
                policies[kind] = merged(policies[kind], entries) if kind in policies else entries
            if sum(map(len, policies.values())) > ENTRIES_MAX:
                raise refusal(f"a user has {ENTRIES_MAX} entries at most; use prefixes")
            await self._keep_acl(acl.username, Acl(acl.username, policies))

    async def delete_policies(
        self, username: str, kind: PolicyType, resource: Resource | None
    ) -> None:
        """Remove the entry about a resource, or all policies of a user."""
        async with self._changing:
            before = self.acl(username)
            if before is None:
                raise refusal("The acl is not exist.")
            policies = {} if resource is None else dict(before.policies)
            left = tuple(one for one in policies.pop(kind, ()) if one.resource != resource)
            if left:
                policies[kind] = left
            await self._keep_acl(username, Acl(username, policies))

    async def take_over(self, rules: AccessRules) -> bool:
        """Have these users and policies alone; False where they are those that there are.

        Raises Reject where there is no super user among them, or the disk does not take them.
        """
        async with self._changing:
            if (rules.users, rules.acls) == (self._rules.users, self._rules.acls):
                return False
            await self._keep(rules)
            return True

    async def _keep_acl(self, username: str, acl: Acl) -> None:
        acls = {**self._rules.acls, username: acl}
        if not acl.policies:
            del acls[username]
        await self._keep(replace(self._rules, acls=acls))

    async def _keep(self, rules: AccessRules) -> None:
        """Put rules on disk, and then in force."""
        if not rules.has_super_user:
            raise refusal("one super user must remain, enabled")
        try:
            await asyncio.to_thread(self._file.save, rules)
        except OSError as error:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"{self._file.path} cannot be written: {error}"
            ) from error
        self._rules = rules
        self._set_rules(rules)


def refusal(remark: str) -> Reject:
    """The refusal of a change."""
    return Reject(ResponseCode.NO_PERMISSION, remark)


def _check_touches(user: User, *, by_super: bool) -> None:
    if user.is_super and not by_super:
        raise refusal("The super user can only be update by super user")


def _check_addresses(entries: tuple[PolicyEntry, ...]) -> None:
    for text in (text for entry in entries for text in entry.source_ips):
        if not text.strip():
            raise refusal("The source ip is empty.")
        if not is_network(text):
            raise refusal("The source ip is invalid.")


def _about(acl: Acl, part: str) -> Acl:
    """The entries about resources that contain a text."""
    policies = {
        kind: tuple(one for one in entries if part in str(one.resource))
        for kind, entries in acl.policies.items()
    }
    return Acl(acl.username, {kind: entries for kind, entries in policies.items() if entries})
