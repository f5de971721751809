"""What other brokers of the same name know of epochs, and what follows for this one.

A master looks for a newer one before it starts and every `PERIOD_S`; an older one it tells to look.
A slave looks at its master before it follows: never one of an older epoch, and where their logs are
two histories, what this one has alone is moved out first. Brokers without epochs (Apache's) are
followed as before the first promotion. Java: ReplicasManager, AutoSwitchHAClient.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.replication.epoch_keeper import RoleChange
from cometmq.broker.replication.log_follower import HistoryDiffers
from cometmq.errors import BrokerError, CometError, StoreError
from cometmq.model.replication import FIRST_EPOCH
from cometmq.rules.epochs import common_end, id_to_take, is_newer
from cometmq.wire.bodies.epochs import decode_epoch_status
from cometmq.wire.bodies.route import decode_member_group
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import GetBrokerMemberGroupRequestHeader
from cometmq.wire.headers.replication import (
    GetBrokerEpochCacheRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.broker.replication.epoch_keeper import EpochKeeper
    from cometmq.model.replication import EpochStatus
    from cometmq.net.channel_pool import ChannelPool
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

PERIOD_S = 10.0
"""Time between two looks of a master for a newer one."""
TIMEOUT_S = 3.0
_KNOWS_NONE = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)


class EpochPeers:
    """The other brokers of one name. Belongs to the broker's loop."""

    def __init__(
        self,
        pool: ChannelPool,
        registration: NamesrvRegistration,
        settings: BrokerSettings,
        store: MessageStore,
        keeper: EpochKeeper,
        address: Callable[[], str],
    ) -> None:
        """`address()`: where others reach this broker."""
        self._address = address
        self._pool = pool
        self._registration = registration
        self._settings = settings
        self._store = store
        self._keeper = keeper
        self._refusing: set[str] = set()
        """Who does not say what it knows: logged once."""

    async def newer_master(self) -> RoleChange | None:
        """What a master must become, because another broker was promoted; None: it stays."""
        own_addr = self._address()
        addrs = [addr for addr in await self._members() if addr != own_addr]
        found = await asyncio.gather(*(self._known(addr) for addr in addrs))
        mine = self._keeper.kept.epochs
        for addr, theirs in zip(addrs, found, strict=True):
            if theirs is None:
                continue
            if is_newer(theirs.epochs, mine):
                return RoleChange(
                    f"a broker was promoted to master in epoch {theirs.epochs[-1].number}, says "
                    f"{addr}, and this one is of epoch {mine[-1].number}: it becomes a slave",
                    broker_id=id_to_take(mine, theirs.epochs),
                )
            if theirs.is_master and theirs.epochs != mine:
                await self._tell(addr, own_addr, mine[-1].number)
        return None

    async def check_master(self, addr: str) -> None:
        """Raise StoreError unless the master there may be followed now.

        HistoryDiffers: the slave must be rebuilt first. Other CometErrors: it cannot be asked.
        """
        keeper = self._keeper
        kept = keeper.kept
        knows_promotion = kept.promised > FIRST_EPOCH.number
        if not addr:
            if knows_promotion:
                raise StoreError("no name server has said yet where the master is")
            return
        theirs = await self._ask(addr)
        if theirs is None:
            if knows_promotion:
                raise StoreError(f"the master at {addr} has no epochs; this slave's is promoted")
            return
        number = theirs.epochs[-1].number
        if not theirs.is_master:
            raise StoreError(f"the broker at {addr} is no master now")
        if is_newer(kept.epochs, theirs.epochs) or number < kept.promised:
            raise StoreError(
                f"the master at {addr} is of epoch {number}, and this slave has heard of epoch "
                f"{kept.promised}: it waits for the master of that one"
            )
        if theirs.epochs == kept.epochs:
            return
        own_end = self._store.max_phy_offset
        end = common_end(kept.epochs, own_end, theirs.epochs, theirs.log_end)
        if end >= own_end:
            keeper.adopt(theirs.epochs)
            return
        self._part(end, theirs)

    def _part(self, end: int, theirs: EpochStatus) -> None:
        """Have moved out what the log has from this byte on."""
        if end < self._store.min_phy_offset:
            raise HistoryDiffers(
                f"this log and that of the master of epoch {theirs.epochs[-1].number} part at byte "
                f"{end}, before the first one that is left here"
            )
        if self._keeper.on_change is None:
            raise StoreError("this process cannot open its store anew")
        why = (
            f"the master of epoch {theirs.epochs[-1].number} has other messages from byte {end} of "
            f"the log on: those of this broker are moved out"
        )
        self._keeper.change(RoleChange(why, epochs=theirs.epochs, cut_at=end))
        raise StoreError(why)

    async def _members(self) -> list[str]:
        """Where the brokers of this name are, as the first name server that answers says."""
        settings = self._settings
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=settings.broker_cluster_name, broker_name=settings.broker_name
        )
        for name_server in self._registration.name_servers:
            try:
                answer = await self._call(
                    name_server, request(RequestCode.GET_BROKER_MEMBER_GROUP, 0, header)
                )
                group = decode_member_group(answer.body) if answer.code == 0 else None
            except CometError:
                continue
            if group is not None:
                return list(group.broker_addrs.values())
        return []

    async def _known(self, addr: str) -> EpochStatus | None:
        """What a broker knows of epochs; None where it knows none, or does not answer."""
        try:
            return await self._ask(addr)
        except BrokerError as problem:
            if addr not in self._refusing:
                self._refusing.add(addr)
                log.warning("whether another master is newer is not known: %s", problem)
        except CometError:
            pass  # it is away
        return None

    async def _ask(self, addr: str) -> EpochStatus | None:
        """What a broker knows of epochs; None where it knows none. Raises CometError."""
        header = GetBrokerEpochCacheRequestHeader(with_first=True)
        answer = await self._call(addr, request(RequestCode.GET_BROKER_EPOCH_CACHE, 0, header))
        if answer.code in _KNOWS_NONE:
            return None
        if answer.code != 0:
            raise BrokerError(answer.code, answer.remark, f"{addr}, asked for its epochs,")
        return decode_epoch_status(answer.body)

    async def _tell(self, addr: str, own_addr: str, number: int) -> None:
        """Have an older master look for newer ones."""
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=own_addr, master_epoch=number, master_broker_id=0
        )
        try:
            await self._call(addr, request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, 0, header))
        except CometError as problem:
            log.warning(
                "the former master at %s does not hear of epoch %d: %s", addr, number, problem
            )

    async def _call(self, addr: str, command: Command) -> Command:
        channel = await self._pool.channel(addr)
        return await channel.call(command, TIMEOUT_S)
