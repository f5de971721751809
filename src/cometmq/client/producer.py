"""AsyncProducer: sends messages, one at a time, by key, in batches, or without waiting.

Owns the public sending methods; refuses to know frames and retries (`delivery`, `bulk`).
Invariant: sends of one sharding key leave one after the other, retries included, while other keys
go on side by side.
Java: DefaultMQProducer
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Self

from cometmq.client import validation
from cometmq.client.bulk import Bulk
from cometmq.client.choice import QueueChoice
from cometmq.client.core import Core, running
from cometmq.client.delivery import UNTIL_DEADLINE, Delivery
from cometmq.client.lanes import Lanes
from cometmq.client.options import ClientOptions, ProducerOptions, name_servers
from cometmq.client.outgoing import Outgoing, outgoing
from cometmq.errors import TooManyRequests
from cometmq.world.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult


class AsyncProducer:
    """Sends messages to the brokers that the name servers name.

    `group` names the producers that send for one purpose. `namesrv` is "host:port", several joined
    by ";" or as a list; without it the environment's NAMESRV_ADDR is used. `retries` counts further
    attempts after the first, on other brokers where there are any. Bodies from
    `compress_over_bytes` on are deflated. Use it as a context manager, or call start and stop.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        retries: int = 2,
        compress_over_bytes: int = 4096,
        body_bytes_max: int = 4 * 1024 * 1024,
        default_topic_queues: int = 4,
        instance_name: str | None = None,
    ) -> None:
        self._options = ProducerOptions(
            group=group,
            retries=retries,
            compress_over_bytes=compress_over_bytes,
            body_bytes_max=body_bytes_max,
            default_topic_queues=default_topic_queues,
        )
        self._client_options = ClientOptions(
            namesrv=name_servers(namesrv, os.environ), instance_name=instance_name
        )
        self._choice = QueueChoice(first=os.getpid())
        self._core: Core | None = None
        self._delivery: Delivery
        self._bulk: Bulk
        self._lanes = Lanes()
        self._pending: set[asyncio.Task[SendResult]] = set()

    async def start(self) -> None:
        """Make ready to send. No connection is made before the first message needs it."""
        if self._core is None:
            core = Core(self._client_options, SystemClock())
            core.be_producer(self._options.group)
            core.start()
            self._core = core
            self._delivery = Delivery(core, self._options)
            self._bulk = Bulk(core, self._delivery, self._choice, self._options)

    async def stop(self) -> None:
        """Wait for the sends begun with send_async, then close all connections."""
        if self._core is not None:
            await asyncio.gather(*self._pending, return_exceptions=True)
            core, self._core = self._core, None
            await core.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    async def send(
        self, message: Message, timeout_s: float = 3.0, *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        The queue is the one given, else that of the message's sharding key, else the next in turn.
        `timeout_s` bounds the whole call, retries included. Raises InvalidMessage, RouteNotFound,
        RemotingError (RemotingTimeout at the deadline) or BrokerError.
        """
        core = running(self._core, "producer")
        validation.check_timeout(timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        prepared = self._prepared(message, core)
        if message.sharding_key is None or queue is not None:
            return await self._deliver(prepared, message, queue, deadline)
        async with self._lanes.enter((message.topic, message.sharding_key), deadline):
            return await self._deliver(prepared, message, None, deadline)

    def send_async(
        self, message: Message, timeout_s: float = 3.0, *, queue: MessageQueue | None = None
    ) -> asyncio.Future[SendResult]:
        """Begin to send one message and return the future of its result; otherwise like send.

        Messages of one sharding key leave in the order of the calls. Raises TooManyRequests when
        65,535 sends are under way.
        """
        running(self._core, "producer")
        if len(self._pending) >= self._options.pending_max:
            raise TooManyRequests(f"{len(self._pending)} sends are under way; wait for some first")
        task = asyncio.get_running_loop().create_task(self.send(message, timeout_s, queue=queue))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Write one message to a broker; whether it was stored, nobody says.

        Raises InvalidMessage, RouteNotFound, or RemotingError when there is no connection.
        """
        core = running(self._core, "producer")
        prepared = self._prepared(message, core)
        chosen = queue or await self._choose(message, None)
        await self._delivery.oneway(prepared, chosen)

    async def send_batch(
        self, messages: Iterable[Message], timeout_s: float = 3.0
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as possible; one result for each, in order.

        Messages with a sharding key go to the key's queue, in their order; the others share one
        queue. Retried like send. Raises PartlySent (with the results so far) when some of several
        requests failed, else the error itself.
        """
        running(self._core, "producer")
        validation.check_timeout(timeout_s)
        found = validation.listed(messages)
        validation.check_batch(found)
        return await self._bulk.send(found, timeout_s, self._options.retries, is_spread=False)

    async def send_many(
        self, messages: Iterable[Message], timeout_s: float = 60.0
    ) -> list[SendResult]:
        """Send many messages fast and in order; one result for each, in the order given.

        Messages are grouped by queue: a queue has one request under way, queues go side by side,
        and no queue is ever reordered. While a broker is away its messages wait and are tried again
        until `timeout_s` seconds are over. Raises PartlySent (its `results` say what was stored).
        """
        running(self._core, "producer")
        validation.check_timeout(timeout_s)
        found = validation.listed(messages)
        return await self._bulk.send(found, timeout_s, UNTIL_DEADLINE, is_spread=True)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages may be sent to, in their order."""
        core = running(self._core, "producer")
        validation.check_topic(topic)
        return await core.routes.publish_queues(topic, self._options.default_topic_queues)

    def _prepared(self, message: Message, core: Core) -> Outgoing:
        validation.check_kind(message)
        validation.check_topic(message.topic)
        validation.check_message(message, self._options.body_bytes_max)
        return outgoing(message, self._options, core.uniq_keys, core.clock.now_ms())

    async def _deliver(
        self, prepared: Outgoing, message: Message, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        async def choose(failed_broker: str | None) -> MessageQueue:
            return queue or await self._choose(message, failed_broker)

        return await self._delivery.one(prepared, choose, self._options.retries, deadline)

    async def _choose(self, message: Message, failed_broker: str | None) -> MessageQueue:
        core = running(self._core, "producer")
        queues = await core.routes.publish_queues(message.topic, self._options.default_topic_queues)
        if message.sharding_key is not None:
            return self._choice.by_key(queues, message.sharding_key)
        return self._choice.in_turn(message.topic, queues, failed_broker)
