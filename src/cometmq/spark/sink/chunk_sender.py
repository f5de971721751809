"""Sends chunks of rows with the client's producer, and says which row could not be sent.

Owns what becomes of one chunk; the window of chunks is `send_window`. Invariants: a chunk is sent
only when every row of it has an answer; rows of one sharding key, and those for one given queue,
are sent in their order, and none after one that failed. One loop owns it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from cometmq.client.producer import message_checks as checks
from cometmq.errors import (
    ClientError,
    CometError,
    InvalidMessage,
    PartlySent,
    RouteNotFound,
    RowNotSent,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.producer.async_producer import AsyncProducer
    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.sink.row_messages import RowChunk

BODY_BYTES_MAX = 4 * 1024 * 1024
_UNKNOWN_TOPIC_RETRY_S = 3.0


class ChunkSender:
    """Sends the chunks of one task; a broker that is away is tried again for `retry_for_s`."""

    def __init__(self, producer: AsyncProducer, retry_for_s: float, partition: int) -> None:
        self._producer = producer
        self._retry_for_s, self._partition = retry_for_s, partition
        self._queues: dict[str, Sequence[MessageQueue]] = {}

    async def send(self, chunk: RowChunk) -> int:
        """Send all rows, and return how many; raises RowNotSent for the first that was not."""
        self._check(chunk)
        for at, message in enumerate(chunk.messages):
            if message.topic not in self._queues:
                try:
                    self._queues[message.topic] = await self._queues_of(message.topic)
                except CometError as error:
                    self._refuse(chunk, at, error)
        free, queued = self._by_queue(chunk)
        await asyncio.gather(
            self._send_free(chunk, free),
            *(self._send_in_turn(chunk, queue, rows) for queue, rows in queued.items()),
        )
        return len(chunk.messages)

    def _check(self, chunk: RowChunk) -> None:
        topics: set[object] = set()
        for at, message in enumerate(chunk.messages):
            try:
                if message.topic not in topics:
                    checks.check_topic(message.topic)
                    topics.add(message.topic)
                if message.body is None:
                    raise InvalidMessage(f"the body of a message for {message.topic} is null")
            except InvalidMessage as error:
                self._refuse(chunk, at, error)

    async def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic; an unknown one is asked for during 3 s at most."""
        now = asyncio.get_running_loop().time
        began = now()
        while True:
            try:
                return await self._producer.queues(topic)
            except CometError as error:
                limit = self._retry_for_s
                if isinstance(error, RouteNotFound):
                    limit = min(limit, _UNKNOWN_TOPIC_RETRY_S)
                if not error.retriable or now() - began + 0.5 >= limit:
                    raise
                await asyncio.sleep(0.5)

    def _by_queue(self, chunk: RowChunk) -> tuple[list[int], dict[MessageQueue, list[int]]]:
        """The rows that go to any queue, and those that ask for one, by place in the chunk."""
        if chunk.queues is None:
            return list(range(len(chunk.messages))), {}
        free: list[int] = []
        queued: dict[MessageQueue, list[int]] = {}
        for at, (broker, number) in enumerate(chunk.queues):
            if number is None:
                free.append(at)
                continue
            try:
                queue = self._queue(chunk.messages[at].topic, broker, number)
            except ClientError as error:
                self._refuse(chunk, at, error)
            queued.setdefault(queue, []).append(at)
        return free, queued

    def _queue(self, topic: str, broker: str | None, number: int) -> MessageQueue:
        found = [
            queue
            for queue in self._queues[topic]
            if queue.queue_id == number and broker in (None, queue.broker_name)
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            raise ClientError(f"no broker{f' {broker}' if broker else ''} has a queue {number}")
        names = ", ".join(queue.broker_name for queue in found)
        raise ClientError(f"{names} have a queue {number} each: a column broker must say whose")

    async def _send_free(self, chunk: RowChunk, rows: list[int]) -> None:
        """Send rows without a queue of their own, by queue in frames."""
        messages = [chunk.messages[at] for at in rows]
        if not messages:
            return
        try:
            await self._producer.send_many(messages, self._retry_for_s)
        except PartlySent as error:
            first = next(at for at, result in enumerate(error.results) if result is None)
            cause = error.__cause__ if isinstance(error.__cause__, CometError) else error
            self._refuse(chunk, rows[first], cause)
        except InvalidMessage as error:
            self._refuse(chunk, rows[_first_invalid(messages)], error)
        except CometError as error:
            self._refuse(chunk, rows[0], error)

    async def _send_in_turn(self, chunk: RowChunk, queue: MessageQueue, rows: list[int]) -> None:
        """Send rows for one queue, each after the answer to the one before it."""
        for at in rows:
            try:
                await self._producer.send(chunk.messages[at], self._retry_for_s, queue=queue)
            except CometError as error:
                self._refuse(chunk, at, error)

    def _refuse(self, chunk: RowChunk, at: int, error: CometError) -> NoReturn:
        topic, row = chunk.messages[at].topic, chunk.first + at
        raise RowNotSent(self._partition, row, topic, str(error)) from error


def _first_invalid(messages: Sequence[Message]) -> int:
    """The place of the first message that breaks the rules; 0 when none of them alone does."""
    for at, message in enumerate(messages):
        try:
            checks.check_message(message, BODY_BYTES_MAX)
        except InvalidMessage:
            return at
    return 0
