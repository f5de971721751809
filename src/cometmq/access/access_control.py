"""Admission by users and policies: a request without a good signature, or without the right to what
it asks, is refused before its handler.

Owns the rules in force. Refuses to know where they come from: files of ACL 2.0 or of ACL 1.0 hand
them over. Invariant: signatures are compared in constant time, and no secret is in any text.
A signature covers no time and no connection: whoever records a request can send it again.
Java: AuthenticationPipeline, AuthorizationPipeline, PlainPermissionManager.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from functools import partial
from typing import TYPE_CHECKING

from cometmq.access.request_rights import RIGHTS, RequestRight
from cometmq.errors import ProtocolError, Reject
from cometmq.model.access import Action, Resource, ResourceType
from cometmq.net.admission import Admission
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.rules.access.resource_names import resource_of_group, resource_of_topic
from cometmq.wire.codes import ResponseCode
from cometmq.wire.request_signature import ACCESS_KEY, SIGNATURE, is_signature, sign

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cometmq.access.request_rights import Actions
    from cometmq.model.access import User
    from cometmq.net.admission import AdmissionRequest
    from cometmq.net.connection import Connection
    from cometmq.rules.access.access_rules import AccessRules
    from cometmq.wire.command import Command
    from cometmq.wire.request_signature import SignatureCheck

log = logging.getLogger(__name__)

_ANY_CLUSTER = "*"
"""Stands for the cluster where a request names none: only a right on all clusters covers it."""
_UNSIGNED_FIELD, _VERSION_4_9_3 = "_UNIQUE_KEY_QUERY", 399
"""Clients up to 4.9.3 add this field behind the signature."""


class AccessControl(Admission):
    """Asks for a signature, and for a right where `authorizes`. Belongs to its server's loop."""

    def __init__(self, rules: AccessRules, cluster: str = "", *, authorizes: bool = True) -> None:
        """`cluster` is the broker's; a name server has none, and goes by what requests say."""
        super().__init__()
        self._rules = rules
        self._cluster = cluster
        self._authorizes = authorizes
        self._reading = asyncio.Lock()
        self._log = RateLimitedLog(log)

    @property
    def rules(self) -> AccessRules:
        """The rules in force."""
        return self._rules

    def set_rules(self, rules: AccessRules) -> None:
        """Have other rules in force from now on."""
        self._rules = rules
        self.rules_changed()

    def admit(
        self, request: AdmissionRequest, connection: Connection
    ) -> Coroutine[None, None, None] | None:
        """Raise Reject with NO_PERMISSION unless somebody who may do it has signed it."""
        try:
            user = self._user_of(request.command, connection.address)
            if user is not None:
                if request.is_long_to_read and not self._is_beyond_rights(user, connection.address):
                    return self._admit_later(user, request, connection)
                self._authorize(user, request, connection.address)
        except Reject as refusal:
            self._note(request.command, connection, refusal)
            raise
        connection.user = "" if user is None else user.username
        return None

    async def _admit_later(
        self, user: User, request: AdmissionRequest, connection: Connection
    ) -> None:
        """Do the same in a thread, one at a time."""
        try:
            async with self._reading:
                await asyncio.to_thread(self._authorize, user, request, connection.address)
        except Reject as refusal:
            self._note(request.command, connection, refusal)
            raise
        connection.user = user.username

    def admit_found(self, command: Command, connection: Connection, topic: str) -> None:
        """Raise Reject unless the user may do it with the topic that the handler found."""
        actions = RIGHTS.get(command.code, RequestRight()).found
        try:
            self._require_of(command.ext.get(ACCESS_KEY, ""), connection, topic, actions)
        except Reject as refusal:
            self._note(command, connection, refusal)
            raise

    def may_be_asked(self, connection: Connection, topic: str) -> bool:
        """Whether who signed this connection's last request may send to the topic."""
        try:
            self._require_of(connection.user, connection, topic, (Action.PUB,))
        except Reject as refusal:
            self._log.warning(
                "%s is not asked about a half message of %s: %s",
                connection.addr,
                topic,
                refusal.remark,
            )
            return False
        return True

    def always_admits(self, _request: AdmissionRequest, connection: Connection) -> bool:
        """Whether the address alone admits."""
        return self._rules.is_open_to(connection.address)

    def signature_check(
        self, request: AdmissionRequest, connection: Connection
    ) -> SignatureCheck | None:
        """What checks a signature by the password of who has signed and may do this."""
        address = connection.address
        try:
            user = self._user_of(request.command, address)
            if user is None or self._rules.is_trusted(user.username, address):
                return None
            self._authorize(user, request, address)
        except (Reject, ProtocolError):
            return None
        if _UNSIGNED_FIELD in request.fields:
            return None
        return partial(is_signature, user.password.encode())

    def is_of_super_user(self, command: Command) -> bool:
        """Whether a request that was admitted is a super user's."""
        user = self._rules.users.get(command.ext.get(ACCESS_KEY, ""))
        return user is not None and user.is_super

    def _user_of(self, command: Command, address: str) -> User | None:
        """Who signed a request; None where the address alone is enough."""
        rules, fields = self._rules, command.ext
        if rules.is_open_to(address):
            return None
        user = self._enabled(fields.get(ACCESS_KEY, ""))
        if not rules.is_trusted(user.username, address) and not _is_signed_by(user, command):
            raise _refusal("check signature failed.")
        return user

    def _enabled(self, name: str) -> User:
        """The user of this name, who may sign requests."""
        if not name:
            raise _refusal("username cannot be null.")
        user = self._rules.users.get(name)
        if user is None:
            raise _refusal(f"User:{name} is not found.")
        if not user.is_enabled:
            raise _refusal(f"User:{name} is disabled.")
        return user

    def _is_beyond_rights(self, user: User, address: str) -> bool:
        rules = self._rules
        return (
            not self._authorizes
            or user.is_super
            or rules.is_open_to(address)
            or rules.is_trusted(user.username, address)
        )

    def _authorize(self, user: User, request: AdmissionRequest, address: str) -> None:
        if self._is_beyond_rights(user, address):
            return
        right = RIGHTS.get(request.code)
        if right is None:
            raise _refusal(
                f"User:{user.username} has no permission for request {request.code}: it is for "
                "super users alone"
            )
        if right.cluster:
            named = self._cluster or request.fields.get(right.cluster_field) or _ANY_CLUSTER
            self._require(user, Resource(ResourceType.CLUSTER, named), right.cluster, address)
            return
        asked: dict[Resource, Actions] = {}
        resources = request.resources
        if right.topics:
            asked |= dict(_asked_of(topic, right.topics) for topic in resources.topics)
        if right.groups:
            asked |= {resource_of_group(group): right.groups for group in resources.groups}
        if not asked and not right.may_name_nothing:
            raise _refusal(f"request {request.code} names no topic and no group")
        for resource, actions in asked.items():
            self._require(user, resource, actions, address)

    def _require_of(
        self, username: str, connection: Connection, topic: str, actions: Actions
    ) -> None:
        """Raise Reject unless the user may do one of these with a topic."""
        if self._rules.is_open_to(connection.address):
            return
        user = self._enabled(username)
        if not self._is_beyond_rights(user, connection.address):
            self._require(user, *_asked_of(topic, actions), connection.address)

    def _require(self, user: User, resource: Resource, actions: Actions, address: str) -> None:
        if denial := self._rules.denial(user, resource, actions, address):
            raise _refusal(denial)

    def _note(self, command: Command, connection: Connection, refusal: Reject) -> None:
        self._log.warning(
            "refusing request %d of %s: %s", command.code, connection.addr, refusal.remark
        )


def _asked_of(topic: str, actions: Actions) -> tuple[Resource, Actions]:
    """What is asked of which resource; to send to a retry topic is a consumer's business."""
    found = resource_of_topic(topic)
    if found.type is ResourceType.GROUP:
        actions = tuple(dict.fromkeys(Action.SUB if one is Action.PUB else one for one in actions))
    return found, actions


def _is_signed_by(user: User, command: Command) -> bool:
    fields = command.ext
    if command.version <= _VERSION_4_9_3 and _UNSIGNED_FIELD in fields:
        fields = {name: text for name, text in fields.items() if name != _UNSIGNED_FIELD}
    wanted = sign(fields, command.body, user.password)
    return hmac.compare_digest(wanted.encode(), fields.get(SIGNATURE, "").encode(errors="replace"))


def _refusal(remark: str) -> Reject:
    return Reject(ResponseCode.NO_PERMISSION, remark)
