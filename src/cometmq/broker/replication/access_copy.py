"""Users and policies of a guarded master, for its slave: a promotion lets nobody in anew.

Owns the copying. All that the slave had is replaced, as topics and groups are; what a master says
that would leave no super user is refused. Asked with the inner credentials, which must be a super
user's: others are not shown passwords. Java: none; Apache's slaves copy no users.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.broker.replication.metadata_copy import ask
from cometmq.errors import CometError, ProtocolError
from cometmq.rules.access.access_rules import AccessRules
from cometmq.wire.bodies.access import decode_acls, decode_users
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.access.access_directory import AccessDirectory
    from cometmq.net.channel_pool import ChannelPool

log = logging.getLogger(__name__)


class AccessCopy:
    """Copies a master's users. Belongs to the broker's loop."""

    def __init__(
        self, pool: ChannelPool, directory: AccessDirectory, master_addr: Callable[[], str]
    ) -> None:
        """`master_addr()` is where the master answers requests; empty while nobody knows."""
        self._pool = pool
        self._directory = directory
        self._master_addr = master_addr
        self._logged = ""

    async def run_once(self) -> None:
        """Copy users and policies; a failure is logged once, and tried again with the next call."""
        addr = self._master_addr()
        if not addr:
            return
        try:
            is_changed = await self._directory.take_over(await self._theirs(addr))
        except CometError as problem:
            if self._logged != str(problem):
                self._logged = str(problem)
                log.warning("the users and policies of %s are not copied: %s", addr, problem)
        else:
            self._logged = ""
            if is_changed:
                log.info("the users and policies of %s have changed, and are copied", addr)

    async def _theirs(self, addr: str) -> AccessRules:
        channel = await self._pool.channel(addr)
        users = await ask(channel, RequestCode.AUTH_LIST_USER, decode_users)
        acls = await ask(channel, RequestCode.AUTH_LIST_ACL, decode_acls)
        if not all(user.password for user in users):
            raise ProtocolError(
                "the master shows passwords to super users alone; make the user of "
                "innerClientAuthenticationCredentials one there"
            )
        known = {user.username: user for user in users}
        # one of a user that was made in between comes with the next copy
        return AccessRules(known, {acl.username: acl for acl in acls if acl.username in known})
