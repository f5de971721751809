"""Handlers whose answers wait for the tables of topics and groups to be on disk.

Owns the wait only. Refuses to know how tables are written (`table_writer`) and registered at name
servers (`registration`). Invariant: what a positive answer confirms survives a crash.
Java: none; its handlers write the tables before they answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from cometmq.net.handler import Reply

if TYPE_CHECKING:
    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.model.topic import DataVersion
    from cometmq.net.connection import Connection
    from cometmq.net.dispatcher import FailureAnswer, OnDurable
    from cometmq.net.handler import Handler, HandlerResult
    from cometmq.wire.command import Command


class DurableHandler:
    """Such a handler: it answers once topics and groups are on disk.

    When it created or changed a topic, the answer waits for the name servers to know it, too: a
    client asks them for the topic's route as soon as it has the answer.
    """

    __slots__ = (
        "_failure_answer",
        "_groups",
        "_handler",
        "_on_durable",
        "_on_flushed",
        "_registration",
        "_topics",
    )

    def __init__(
        self,
        handler: Handler,
        topics: Topics,
        groups: ConsumerGroups,
        registration: NamesrvRegistration,
        on_durable: OnDurable,
        on_flushed: OnDurable,
        failure_answer: FailureAnswer,
    ) -> None:
        self._handler = handler
        self._topics = topics
        self._groups = groups
        self._registration = registration
        self._on_durable = on_durable
        self._on_flushed = on_flushed
        self._failure_answer = failure_answer

    def __call__(
        self, request: Command, connection: Connection
    ) -> HandlerResult | Awaitable[HandlerResult]:
        """Answer as the handler does, at once or a little later."""
        before = self._topics.generation, self._groups.version
        result = self._handler(request, connection)
        if isinstance(result, Awaitable):
            return self._when_done(result, request, before)
        return self._when_durable(result, request, before)

    def _when_durable(
        self, result: HandlerResult, request: Command, before: tuple[int, DataVersion]
    ) -> HandlerResult | Awaitable[HandlerResult]:
        """The result, or what waits for the disk and the name servers and returns it then."""
        if not isinstance(result, Reply):
            return result
        is_registered = self._topics.generation == before[0]
        is_unchanged = is_registered and self._groups.version is before[1]
        if is_unchanged and (result.code or not self._may_be_pending(request)):
            return result  # a refusal stands on nothing
        log_flushed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if result.durable:  # asked for now: a later call would speak of later messages
            on_durable = self._on_flushed if result.local_only else self._on_durable
            on_durable(log_flushed.set_result)
        else:
            log_flushed.set_result(None)
        return self._when_flushed(result, log_flushed, is_registered=is_registered)

    def _may_be_pending(self, request: Command) -> bool:
        """Whether an answer may stand on what is not on disk yet."""
        topic = request.ext.get("topic") or request.ext.get("b")
        if topic is not None and "group" not in request.ext:  # else it is what a group may read
            return self._topics.writer.is_pending(topic)
        return self._topics.writer.has_pending or self._groups.writer.has_pending

    async def _when_done(
        self, awaited: Awaitable[HandlerResult], request: Command, before: tuple[int, DataVersion]
    ) -> HandlerResult:
        result = self._when_durable(await awaited, request, before)
        return await result if isinstance(result, Awaitable) else result

    async def _when_flushed(
        self, reply: Reply, log_flushed: asyncio.Future[Any], *, is_registered: bool
    ) -> Reply:
        # raises Reject, which becomes the answer, where the disk refused the tables
        await self._topics.writer.flushed()
        await self._groups.writer.flushed()
        if not is_registered:
            await self._registration.wait_registered()
        status = await asyncio.shield(log_flushed)  # the store completes it in any case
        reply.durable = False
        if status:
            reply.code, reply.remark = self._failure_answer(status)
        return reply
