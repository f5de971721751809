"""Requests about users and policies (3001 to 3010), of broker and name server.

Turns requests into calls of the directory, and its values into RocketMQ's bodies. Passwords are
shown to super users alone, who need them to copy users; only they touch super users.
Java: createUser, updateUser, deleteUser, getUser, listUser, createAcl, updateAcl, deleteAcl,
getAcl, listAcl of AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.access.access_directory import refusal
from cometmq.errors import ProtocolError, Reject
from cometmq.model.access import PolicyType
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire import fastjson
from cometmq.wire.bodies import access as bodies
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers import access as headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.access.access_directory import AccessDirectory
    from cometmq.model.access import Acl, User
    from cometmq.net.connection import Connection
    from cometmq.wire.bodies.access import UserFields
    from cometmq.wire.command import Command

BODY_BYTES_MAX = 256 * 1024
"""Largest body that describes a user or policies."""


class AccessRequests:
    """Answers such requests. Belongs to its server's loop."""

    def __init__(
        self,
        directory: AccessDirectory | None,
        is_of_super_user: Callable[[Command], bool],
        why_not: str = "",
    ) -> None:
        """Without a directory each request is refused with `why_not`."""
        self._directory_or_none = directory
        self._is_of_super_user = is_of_super_user
        self._why_not = why_not

    def endpoints(self) -> list[Endpoint]:
        """The requests that this class answers."""
        changes = (
            (Code.AUTH_CREATE_USER, self.create_user),
            (Code.AUTH_UPDATE_USER, self.update_user),
            (Code.AUTH_DELETE_USER, self.delete_user),
            (Code.AUTH_CREATE_ACL, self.add_policies),
            (Code.AUTH_UPDATE_ACL, self.add_policies),
            (Code.AUTH_DELETE_ACL, self.delete_policies),
        )
        return [
            *(
                Endpoint(code, handler, RequestEffect.MUTATING, body_bytes_max=BODY_BYTES_MAX)
                for code, handler in changes
            ),
            Endpoint(Code.AUTH_GET_USER, self.get_user),
            Endpoint(Code.AUTH_LIST_USER, self.list_users),
            Endpoint(Code.AUTH_GET_ACL, self.get_policies),
            Endpoint(Code.AUTH_LIST_ACL, self.list_policies),
        ]

    async def create_user(self, request: Command, _connection: Connection) -> Reply:
        """Add a user (3001)."""
        username, fields = self._user_change(request, "create")
        await self._directory.create_user(username, fields)
        return Reply()

    async def update_user(self, request: Command, _connection: Connection) -> Reply:
        """Change a user (3002)."""
        username, fields = self._user_change(request, "update")
        by_super = self._is_of_super_user(request)
        await self._directory.update_user(username, fields, by_super=by_super)
        return Reply()

    async def delete_user(self, request: Command, _connection: Connection) -> Reply:
        """Delete a user (3003)."""
        username = headers.UserRequestHeader.decode(request.ext).username
        if not username or not username.strip():
            raise refusal("username can not be blank")
        await self._directory.delete_user(username, by_super=self._is_of_super_user(request))
        return Reply()

    def get_user(self, request: Command, _connection: Connection) -> Reply:
        """Show a user (3004); an empty body where there is none."""
        user = self._directory.user(_username(request))
        return Reply(body=b"" if user is None else fastjson.dumps(self._shown(user, request)))

    def list_users(self, request: Command, _connection: Connection) -> Reply:
        """List users (3005)."""
        part = headers.ListUsersRequestHeader.decode(request.ext).filter or ""
        users = self._directory.users(part)
        return Reply(body=bodies.encode_objects(self._shown(user, request) for user in users))

    async def add_policies(self, request: Command, _connection: Connection) -> Reply:
        """Add or replace policies of a user (3006, 3007)."""
        directory = self._directory
        acl = _asked_acl(request)
        await directory.add_policies(acl)
        return Reply()

    async def delete_policies(self, request: Command, _connection: Connection) -> Reply:
        """Delete the policy about a resource, or all of a user (3008)."""
        header = headers.AclRequestHeader.decode(request.ext)
        kind = bodies.member_of(PolicyType, header.policy_type or PolicyType.CUSTOM)
        resource = bodies.resource_of(header.resource) if header.resource else None
        if kind is None:
            raise refusal("The policy type is illegal.")
        if header.resource and resource is None:
            raise refusal("The resource is null.")
        await self._directory.delete_policies(_subject(request), kind, resource)
        return Reply()

    def get_policies(self, request: Command, _connection: Connection) -> Reply:
        """Show the policies of a user (3009); an empty body where there are none."""
        acl = self._directory.acl(_subject(request))
        return Reply(body=b"" if acl is None else fastjson.dumps(bodies.acl_object(acl)))

    def list_policies(self, request: Command, _connection: Connection) -> Reply:
        """List policies (3010)."""
        header = headers.ListAclsRequestHeader.decode(request.ext)
        found = self._directory.acls(header.subject_filter or "", header.resource_filter or "")
        return Reply(body=bodies.encode_objects(map(bodies.acl_object, found)))

    @property
    def _directory(self) -> AccessDirectory:
        if self._directory_or_none is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, self._why_not)
        return self._directory_or_none

    def _user_change(self, request: Command, act: str) -> tuple[str, UserFields]:
        username = _username(request)
        try:
            fields = bodies.decode_user_fields(request.body)
        except ProtocolError as problem:
            raise refusal(str(problem)) from problem
        if fields.is_super and not self._is_of_super_user(request):
            remark = f"The super user can only be {act} by super user"
            raise Reject(ResponseCode.SYSTEM_ERROR, remark)
        return username, fields

    def _shown(self, user: User, request: Command) -> dict[str, object]:
        return bodies.user_object(user, shows_password=self._is_of_super_user(request))


def _username(request: Command) -> str:
    username = headers.UserRequestHeader.decode(request.ext).username
    if not username or not username.strip():
        raise Reject(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return username


def _subject(request: Command) -> str:
    try:
        return bodies.username_of(headers.AclRequestHeader.decode(request.ext).subject or "")
    except ProtocolError:
        raise refusal("The subject is null.") from None


def _asked_acl(request: Command) -> Acl:
    if not request.body:
        raise refusal("The body of acl is null")
    subject = headers.AclRequestHeader.decode(request.ext).subject
    try:
        named = bodies.username_of(subject) if subject else ""
        acl = bodies.decode_acl(request.body, named)
    except ProtocolError as problem:
        raise refusal(str(problem)) from problem
    if not acl.username:
        raise refusal("The subject type is null.")
    return acl
