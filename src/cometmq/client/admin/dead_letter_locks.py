"""The locks that let one operator at a time send a group's dead letters again, or drop them.

They are locks of the dead-letter queues, as members of an orderly group take them for theirs, so
every broker has them. The tools' group takes them: a group with a lock counts as orderly, and a
broker puts what is sent to its retry topic among the dead letters.
Invariant: who `holds` has the lock of each queue until it leaves, as long as the brokers live.
Java: none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Self

from cometmq.client.consumer.queue_lease import REFUSED
from cometmq.client.consumer.queue_locks import QueueLockClient
from cometmq.errors import BrokerAway, OperatorAtWork
from cometmq.model.group import TOOLS_GROUP

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.client.consumer.queue_lease import QueueLease
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

_VALID_S = 50.0
"""Brokers keep a lock for 60 s."""
_RENEWED_S = 20.0
_WAIT_S, _AGAIN_S = 10.0, 0.2
_calls = count()


class DeadLetterLocks:
    """The locks of a group's dead-letter queues, for one call. A context manager of one loop.

    Entering waits up to 10 s for another operator. Raises OperatorAtWork when that one is still at
    work, BrokerAway when a broker does not answer.
    """

    def __init__(
        self, session: ClientSession, group: str, queues: Collection[MessageQueue]
    ) -> None:
        self._group = group
        self._queues = sorted(queues)
        owner = f"{session.client_id}#{next(_calls)}"  # two calls of one client exclude each other
        self._client = QueueLockClient(session, TOOLS_GROUP, _VALID_S, owner)
        self._held: dict[MessageQueue, QueueLease] = {}
        self._renewals: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Wait for the locks."""
        try:
            await self._wait()
            self._renewals = asyncio.create_task(self._renew())
        finally:
            if self._renewals is None:
                await self._unlock()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Return the locks."""
        if self._renewals is not None:
            self._renewals.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewals
        await self._unlock()

    async def holds(self) -> bool:
        """Whether all locks are ours now; those that ended with a connection are taken again."""
        for queue in self._queues:  # all take them in one order, so nobody waits for ever
            lock = self._held.get(queue, REFUSED)
            if not lock.is_valid(asyncio.get_running_loop().time()):
                self._held.pop(queue, None)
                self._held |= await self._client.lock([queue])
            if self._held.get(queue, REFUSED) is REFUSED:
                return False
        return True

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAIT_S
        while not await self.holds():
            if loop.time() >= deadline:
                raise self._refusal()
            await self._unlock()
            await asyncio.sleep(_AGAIN_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEWED_S)
            self._held |= await self._client.lock(self._queues)

    async def _unlock(self) -> None:
        held = [queue for queue, lock in self._held.items() if lock is not REFUSED]
        self._held.clear()
        for queue in held:
            await self._client.unlock(queue)

    def _refusal(self) -> OperatorAtWork | BrokerAway:
        if REFUSED not in self._held.values():
            silent = next(one.broker_name for one in self._queues if one not in self._held)
            return BrokerAway(
                f"the broker {silent} did not lock the dead letters of {self._group}: nothing was "
                "sent; call again when it answers",
                [silent],
            )
        return OperatorAtWork(
            f"another operator is sending or dropping the dead letters of {self._group}: call "
            "again when that is done; the locks of one that died end within 60 s"
        )
