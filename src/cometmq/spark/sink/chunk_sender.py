"""Sends chunks of rows, and says which rows no broker takes.

Owns what becomes of one chunk; the window of chunks is `send_window`. Invariants: a chunk is sent
only when every row of it has an answer or is refused; rows of one sharding key, and those for one
given queue, are sent in order, and none while an earlier one is tried again. One loop owns it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from cometmq.client.producer.retrying_sender import UNTIL_DEADLINE
from cometmq.errors import BrokerError, CometError, RouteNotFound, RowNotSent
from cometmq.spark.connection_security import explained
from cometmq.spark.sink import row_requests
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.producer.send_pipeline import SendPipeline
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.sink.row_decisions import RowChunk
    from cometmq.spark.sink.row_requests import EncodedRows, RowRequest

_ATTEMPT_S = 5.0
_UNKNOWN_TOPIC_RETRY_S = 3.0


class ChunkSender:
    """Sends the chunks of one task; a broker that is away is tried again for `retry_for_s`.

    With `keeps_refused` rows that cannot be sent are left in `RowChunk.refused`; without it the
    first of them raises RowNotSent.
    """

    def __init__(
        self, pipeline: SendPipeline, retry_for_s: float, partition: int, *, keeps_refused: bool
    ) -> None:
        self._pipeline = pipeline
        self._retry_for_s, self._partition = retry_for_s, partition
        self._keeps_refused = keeps_refused
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        """Fixed for the task, so that no key changes its queue within it."""
        self._unknown: dict[str, str] = {}

    async def send(self, chunk: RowChunk) -> None:
        """Send all rows that can be; raises RowNotSent for a row that may be sent later."""
        self._raise_refused(chunk)
        await self._find_queues(chunk)
        index_of = self._pipeline.queue_selector.index_of
        runs = row_requests.runs_of(chunk, self._queues, index_of)
        self._raise_refused(chunk)
        rows = row_requests.EncodedRows(chunk, runs, self._new_keys)
        try:
            async with asyncio.TaskGroup() as group:  # the first error cancels the other runs
                for run in runs:
                    group.create_task(self._send_run(rows, run))
        except* RowNotSent as errors:
            raise errors.exceptions[0] from None

    def _raise_refused(self, chunk: RowChunk) -> None:
        if chunk.refused and not self._keeps_refused:
            at = min(chunk.refused)
            raise RowNotSent(self._partition, chunk.first + at, chunk.topics[at], chunk.refused[at])

    async def _find_queues(self, chunk: RowChunk) -> None:
        """Have the queues of every topic of the chunk; refuse the rows for unknown topics."""
        refused = chunk.refused
        wanted = set(chunk.topics)
        if refused:
            wanted = {topic for at, topic in enumerate(chunk.topics) if at not in refused}
        new = wanted - self._queues.keys() - self._unknown.keys()
        for topic, error in zip(new, await asyncio.gather(*map(self._find, new)), strict=True):
            if error is not None:
                self._raise(chunk, chunk.topics.index(topic), error)
        if self._unknown:
            for at, topic in enumerate(chunk.topics):
                if topic in self._unknown:
                    refused.setdefault(at, self._unknown[topic])

    async def _find(self, topic: str) -> CometError | None:
        """Find the queues of a topic, or that there is no such topic; else return the error."""
        now = asyncio.get_running_loop().time
        began = now()
        while True:
            try:
                self._queues[topic] = await self._publish_queues(topic)
            except CometError as error:
                waited = now() - began + 0.5
                if waited >= min(self._retry_for_s, _UNKNOWN_TOPIC_RETRY_S) and (
                    await self._is_unknown(topic, error)
                ):
                    self._unknown[topic] = str(error)
                    return None
                if _is_final(error) or waited >= self._retry_for_s:
                    return error
                await asyncio.sleep(0.5)
            else:
                return None

    async def _is_unknown(self, topic: str, error: CometError) -> bool:
        """Whether brokers are there, and none has the topic; they may all be away instead."""
        session = self._pipeline.session
        if not isinstance(error, RouteNotFound) or topic in session.routes.cached:
            return False
        try:
            return bool((await session.name_servers.clusters()).broker_addr_table)
        except CometError:
            return False

    def _new_keys(self, count: int) -> bytes:
        session = self._pipeline.session
        return session.uniq_keys.joined_keys(session.clock.now_ms(), count)

    async def _send_run(self, rows: EncodedRows, run: list[RowRequest]) -> None:
        """Send the requests of a run, each after the answer to the one before it."""
        for request in run:
            await self._send(rows, request)

    async def _send(self, rows: EncodedRows, request: RowRequest) -> None:
        """Send a request; where a broker refuses it for good, find the rows that it refuses."""
        chunk = rows.chunk
        try:
            await self._send_once(rows, request)
        except CometError as error:
            if error.retriable or not isinstance(error, BrokerError):
                self._raise(chunk, request.places[0], error)
            if len(request.places) == 1:
                chunk.refused[request.places[0]] = str(error)
                self._raise_refused(chunk)
                return
            for half in request.halves():
                await self._send(rows, half)

    async def _send_once(self, rows: EncodedRows, request: RowRequest) -> None:
        pipeline = self._pipeline
        session, sender = pipeline.session, pipeline.retrying_sender
        deadline = asyncio.get_running_loop().time() + self._retry_for_s
        born_ms = session.clock.now_ms()

        async def choose(failed_broker: str | None) -> MessageQueue:
            queues = await self._publish_queues(request.topic)  # anew, where a broker was away
            if request.queue is not None:
                return request.queue
            return pipeline.queue_selector.round_robin(request.topic, queues, failed_broker)

        if len(request.places) == 1:
            one = rows.alone(request, born_ms)
            await sender.send(one, choose, UNTIL_DEADLINE, deadline, _ATTEMPT_S)
        else:
            batch = rows.batch(request, born_ms)
            await sender.send_encoded(batch, choose, UNTIL_DEADLINE, deadline, _ATTEMPT_S)

    async def _publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        return await self._pipeline.session.routes.publish_queues(
            topic, self._pipeline.retrying_sender.options.default_topic_queues
        )

    def _raise(self, chunk: RowChunk, at: int, error: CometError) -> NoReturn:
        topic, row = chunk.topics[at], chunk.first + at
        raise RowNotSent(self._partition, row, topic, str(explained(error))) from error


def _is_final(error: CometError) -> bool:
    """Whether waiting cannot help: keys that a name server refuses now, it refuses later."""
    is_refusal = isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION
    return is_refusal or not error.retriable
