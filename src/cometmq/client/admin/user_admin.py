"""AsyncUserAdmin: users and policies at brokers and name servers that guard themselves.

Each server has users of its own: a change is asked of each, one after the other. Apache's name
servers have none and are passed over, as are servers whose access control is off.
Java: DefaultMQAdminExt (createUser and others)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.admin.message_admin import AsyncMessageAdmin
from cometmq.client.session.argument_checks import check_flag, check_texts
from cometmq.client.session.client_options import check_type
from cometmq.errors import BrokerError, ClientError
from cometmq.model.access import Acl, Action, Decision, PolicyEntry, PolicyType
from cometmq.wire.bodies import access as bodies
from cometmq.wire.bodies.access import UserFields
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers import access as headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.access import User
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header


class AsyncUserAdmin(AsyncMessageAdmin):
    """The part of an admin that is about users and policies.

    `servers` are addresses of brokers and name servers, "host:port"; without any, all brokers and
    the name servers of the admin are asked. Changes return the addresses of those that made them.
    They raise ClientError when one refuses, which names it and those that have changed already, or
    when no server has access control.
    """

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        super_user: bool = False,
        servers: Sequence[str] = (),
    ) -> list[str]:
        """Make a user; the name is the access key, the password the secret key."""
        check_flag("super_user", super_user)
        fields = UserFields(_text("password", password), super_user, True)
        return await self._change_user(RequestCode.AUTH_CREATE_USER, username, fields, servers)

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        servers: Sequence[str] = (),
    ) -> list[str]:
        """Change what is named of a user."""
        if password is None and super_user is None and enabled is None:
            raise ClientError("name what to change: password, super_user or enabled")
        if password is not None:
            _text("password", password)
        for name, flag in (("super_user", super_user), ("enabled", enabled)):
            if flag is not None:
                check_flag(name, flag)
        fields = UserFields(password, super_user, enabled)
        return await self._change_user(RequestCode.AUTH_UPDATE_USER, username, fields, servers)

    async def delete_user(self, username: str, *, servers: Sequence[str] = ()) -> list[str]:
        """Delete a user with all policies; a server that has none of this name changes nothing."""
        header = headers.UserRequestHeader(username=_text("username", username))
        return await self._change(RequestCode.AUTH_DELETE_USER, header, b"", servers)

    async def users(self, part: str = "", *, servers: Sequence[str] = ()) -> dict[str, list[User]]:
        """The users whose names contain a text, by server. Super users see the passwords."""
        check_type("part", part, str, "a text")
        header = headers.ListUsersRequestHeader(filter=part)
        found = await self._ask(RequestCode.AUTH_LIST_USER, header, servers)
        return {addr: bodies.decode_users(answer.body) for addr, answer in found.items()}

    async def set_policy(
        self,
        username: str,
        resource: str,
        actions: Sequence[str],
        *,
        allow: bool = True,
        source_ips: Sequence[str] = (),
        servers: Sequence[str] = (),
    ) -> list[str]:
        """Allow or deny a user some actions on a resource, in place of what was said of it before.

        `resource` is as in Topic:orders, Topic:orders*, Group:*, Cluster:DefaultCluster or *;
        `actions` are of Pub, Sub, Create, Update, Delete, Get, List, All. `source_ips` are
        addresses or networks, as in 10.0.0.0/8; none: from everywhere.
        """
        check_flag("allow", allow)
        check_texts("actions", actions)
        check_texts("source_ips", source_ips)
        found = bodies.resource_of(_text("resource", resource))
        if found is None:
            raise ClientError(f"{resource} is no resource: write Topic:..., Group:..., Cluster:...")
        wanted = tuple(_action_of(action) for action in actions)
        if not wanted:
            raise ClientError("name the actions, such as Pub and Sub")
        decision = Decision.ALLOW if allow else Decision.DENY
        entry = PolicyEntry(found, wanted, decision, tuple(source_ips))
        acl = Acl(_text("username", username), {PolicyType.CUSTOM: (entry,)})
        header = headers.AclRequestHeader(subject=bodies.SUBJECT_PREFIX + username)
        body = bodies.encode_acl(acl)
        return await self._change(RequestCode.AUTH_CREATE_ACL, header, body, servers)

    async def delete_policy(
        self, username: str, resource: str | None = None, *, servers: Sequence[str] = ()
    ) -> list[str]:
        """Delete what is said of a resource, or all policies of a user."""
        check_type("resource", resource, str | None, "a text")
        subject = bodies.SUBJECT_PREFIX + _text("username", username)
        header = headers.AclRequestHeader(subject=subject, resource=resource)
        return await self._change(RequestCode.AUTH_DELETE_ACL, header, b"", servers)

    async def policies(
        self, user: str = "", resource: str = "", *, servers: Sequence[str] = ()
    ) -> dict[str, list[Acl]]:
        """The policies of users and about resources that contain these texts, by server."""
        check_type("user", user, str, "a text")
        check_type("resource", resource, str, "a text")
        header = headers.ListAclsRequestHeader(subject_filter=user, resource_filter=resource)
        found = await self._ask(RequestCode.AUTH_LIST_ACL, header, servers)
        return {addr: bodies.decode_acls(answer.body) for addr, answer in found.items()}

    async def _change_user(
        self, code: RequestCode, username: str, fields: UserFields, servers: Sequence[str]
    ) -> list[str]:
        header = headers.UserRequestHeader(username=_text("username", username))
        return await self._change(code, header, bodies.encode_user_fields(fields), servers)

    async def _change(
        self, code: RequestCode, header: Header, body: bytes, servers: Sequence[str]
    ) -> list[str]:
        return list(await self._ask(code, header, servers, body))

    async def _ask(
        self, code: RequestCode, header: Header, servers: Sequence[str], body: bytes = b""
    ) -> dict[str, Command]:
        """The answers of the servers that have access control."""
        check_texts("servers", servers)
        found: dict[str, Command] = {}
        for addr in servers or await self._all_servers():
            answer = await self._running().call(addr, request(code, 0, header, body))
            if not servers and _has_no_users(answer):
                continue
            if answer.code != ResponseCode.SUCCESS:
                refusal = BrokerError(answer.code, answer.remark, addr)
                if not found or code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
                    raise refusal
                raise ClientError(f"{refusal}; changed already: {', '.join(found)}") from refusal
            found[addr] = answer
        if not found:
            raise ClientError("no server has access control: set authenticationEnabled=true there")
        return found

    async def _all_servers(self) -> list[str]:
        brokers = (await self.clusters()).broker_addr_table.values()
        addrs = [addr for each in brokers for _, addr in sorted(each.broker_addrs.items())]
        return [*self._running().name_servers.addrs, *addrs]


def _has_no_users(answer: Command) -> bool:
    is_unknown = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return is_unknown or (answer.remark or "").startswith(bodies.IS_OFF)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ClientError(f"{name} must be a text that is not blank")
    return value


def _action_of(text: str) -> Action:
    found = bodies.member_of(Action, text)
    if found is None:
        known = ", ".join(action.value for action in Action)
        raise ClientError(f"{text[:40]} is no action: they are {known}")
    return found
