"""Senders of every kind of message; each knows what was acknowledged and so must be handled.

A send that fails is tried again with the same body until it is acknowledged, or its outcome stays
unknown: then the message may come, or not.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from cometmq import AsyncProducer, Message
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq import MessageExt

PLAIN, BATCHED, DELAYED, PAID, ORDERED = "Plain", "Batched", "Delayed", "Paid", "Ordered"
TOPICS = (PLAIN, BATCHED, DELAYED, PAID, ORDERED)
KEYS, BATCH, DELAY_S = 20, 16, 1


def is_committed(body: bytes) -> bool:
    """What becomes of a transaction; so a check knows as much as the sender did."""
    return int(body) % 3 != 0


def is_left_to_the_check(body: bytes) -> bool:
    return int(body) % 5 == 0


class Senders:
    """Sends until `stop`; `acked` has, for each topic, the bodies that have to be handled."""

    def __init__(self, namesrv: str, pause_s: float) -> None:
        self.acked: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self.rolled_back: set[str] = set()
        self.sent_at: dict[str, float] = {}
        self.failures = 0
        self._stopped = asyncio.Event()
        self.ended = asyncio.Event()
        self._left = asyncio.Event()
        self._pause_s = pause_s
        self._producer = AsyncProducer("soak-senders", namesrv=namesrv, check=check)

    async def run(self) -> None:
        """Send messages of all kinds beside each other; then answer checks until `leave`."""
        async with self._producer:
            async with asyncio.TaskGroup() as group:
                for kind in (self._plain, self._batch, self._delayed, self._transaction):
                    group.create_task(self._repeat(kind))
                for key in range(KEYS):
                    group.create_task(self._repeat(self._ordered(key)))
            self.ended.set()
            await self._left.wait()

    async def stop(self) -> None:
        """End each task when its last message is acknowledged."""
        self._stopped.set()
        await self.ended.wait()

    def leave(self) -> None:
        """Answer no more checks."""
        self._left.set()

    async def _repeat(self, send: Callable[[int], Awaitable[None]]) -> None:
        number = 0
        while not self._stopped.is_set():
            await self._until_acknowledged(send, number)
            number += 1
            await asyncio.sleep(self._pause_s)

    async def _until_acknowledged(
        self, send: Callable[[int], Awaitable[None]], number: int
    ) -> None:
        while True:
            try:
                return await send(number)
            except CometError:
                self.failures += 1
                await asyncio.sleep(0.1)

    async def _plain(self, number: int) -> None:
        await self._producer.send(Message(PLAIN, b"%d" % number))
        self.acked[PLAIN].add(str(number))

    async def _batch(self, number: int) -> None:
        bodies = [str(number * BATCH + i) for i in range(BATCH)]
        await self._producer.send_batch([Message(BATCHED, body.encode()) for body in bodies])
        self.acked[BATCHED].update(bodies)

    async def _delayed(self, number: int) -> None:
        self.sent_at.setdefault(str(number), time.time())
        await self._producer.send(Message(DELAYED, b"%d" % number, delay_level=1))
        self.acked[DELAYED].add(str(number))

    async def _transaction(self, number: int) -> None:
        body = b"%d" % number
        transaction = self._producer.transaction()
        await transaction.send(Message(PAID, body))
        # From here on the outcome is decided, whether or not the broker hears of it.
        (self.acked[PAID] if is_committed(body) else self.rolled_back).add(str(number))
        outcome = None if is_left_to_the_check(body) else is_committed(body)
        try:
            await transaction.end(outcome)
        except CometError:
            self.failures += 1  # the broker will ask

    def _ordered(self, key: int) -> Callable[[int], Awaitable[None]]:
        async def send(step: int) -> None:
            body = f"{key} {step}"
            await self._producer.send(Message(ORDERED, body.encode(), sharding_key=str(key)))
            self.acked[ORDERED].add(body)

        return send


def check(message: MessageExt) -> bool:
    """Answer the broker's question about a transaction."""
    return is_committed(message.body)
