"""Making a slave the master: asks all brokers of its name, so that nothing acknowledged is lost.

First each other slave hears that a new epoch begins, and follows no older master from then on: what
they have is final. Only a slave that has as much as every other is promoted.
Java: mqadmin electMaster, which asks a controller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, ClientError, CometError, RemotingError
from cometmq.model.replication import Promotion
from cometmq.rules.epochs import is_newer
from cometmq.wire.bodies.epochs import decode_epoch_status
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.replication import (
    GetBrokerEpochCacheRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.replication import EpochStatus

LOOK_S = 0.2
"""Time between two questions whether the promotion is done."""


class SlavePromotion:
    """One promotion. Belongs to the loop of its session."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def run(self, broker: str, timeout_s: float, *, force: bool, may_lose: bool) -> Promotion:
        """Make a slave the master; see `AsyncAdmin.promote`."""
        addr, others = await self._place(broker)
        before = await self.status(addr)
        found = await asyncio.gather(*(self._known(each) for each in others))
        known = {each: status for each, status in zip(others, found, strict=True) if status}
        silent = tuple(each for each in others if each not in known)
        if before.is_master:
            last = before.epochs[-1]
            return Promotion(addr, last.number, last.start, silent)
        masters = [each for each, status in known.items() if status.is_master]
        if masters and not force:
            raise ClientError(
                f"the master at {masters[0]} answers: stop it first; a forced promotion moves "
                "what it has alone out of its log"
            )
        if masters and silent and not may_lose:
            raise ClientError(
                f"{', '.join(silent)} may have sends that the master at {masters[0]} has answered "
                f"with it and {addr} lacks, and does not answer: start it, or stop the master "
                "first, or have these moved out of the log (may_lose, --may-lose)"
            )
        number = 1 + max(
            max(status.epochs[-1].number, status.promised) for status in (before, *known.values())
        )
        await self._hold(addr, known, number)
        await self._notify(addr, number, addr)
        return Promotion(addr, number, await self._wait(addr, number, timeout_s), silent)

    async def status(self, addr: str) -> EpochStatus:
        """What a broker knows of epochs. BrokerError: it knows none, as Apache's."""
        header = GetBrokerEpochCacheRequestHeader(with_first=True)
        command = request(RequestCode.GET_BROKER_EPOCH_CACHE, 0, header)
        return decode_epoch_status((await self._session.call_checked(addr, command)).body)

    async def _place(self, broker: str) -> tuple[str, list[str]]:
        """Where the slave is, and the other brokers of its name."""
        table = (await self._session.name_servers.clusters()).broker_addr_table
        for name, data in table.items():
            addrs = data.broker_addrs
            slaves = [addr for number, addr in addrs.items() if number]
            if broker == name and len(slaves) > 1:
                raise ClientError(
                    f"{broker} has several slaves: name one of {', '.join(sorted(slaves))}"
                )
            if broker == name and not slaves:
                raise ClientError(f"{broker} has no slave that name servers know")
            if broker == name or broker in addrs.values():
                addr = slaves[0] if broker == name else broker
                return addr, [each for each in addrs.values() if each != addr]
        raise ClientError(
            f"no name server knows the broker {broker}; there are: {', '.join(table)}"
        )

    async def _known(self, addr: str) -> EpochStatus | None:
        """What a broker knows of epochs; None where it does not answer.

        BrokerError where it answers and knows none: nobody could tell it of a new master.
        """
        try:
            return await self.status(addr)
        except RemotingError:
            return None

    async def _hold(self, addr: str, others: dict[str, EpochStatus], number: int) -> None:
        """Have the others follow no older master; ClientError where one of them has more."""
        for each in others:
            await self._notify(each, number)
        mine = await self.status(addr)
        for each in others:
            theirs = await self.status(each)
            if is_newer(theirs.reached, mine.reached):
                raise ClientError(
                    f"{addr} has not copied the log up to epoch {theirs.reached[-1].number}, and "
                    f"{each} has: promote one that has, or wait"
                )
            more = theirs.log_end - mine.log_end
            if more > 0 and not theirs.is_master and not is_newer(mine.reached, theirs.reached):
                raise ClientError(
                    f"the slave at {each} has {more} bytes of the log more than the one at {addr}: "
                    "promote that one, or stop it first"
                )

    async def _notify(self, addr: str, number: int, master: str | None = None) -> None:
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=master, master_epoch=number, master_broker_id=0 if master else None
        )
        command = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, 0, header)
        await self._session.call_checked(addr, command)

    async def _wait(self, addr: str, number: int, timeout_s: float) -> int:
        """Wait until the broker is the master of this epoch; returns where that began."""
        problem = "it is a slave still"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        status = await self.status(addr)
                    except CometError as error:
                        problem = str(error)
                    else:
                        if status.is_master and status.epochs[-1].number == number:
                            return status.epochs[-1].start
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, problem, f"{addr}, promoted {timeout_s:g} s ago,"
            ) from None
