"""A broker for Taskiq: tasks as messages of one topic, kept until they are acknowledged.

Owns how a task becomes a message and an acknowledgement ends its delivery; refuses to know results
(a result backend keeps them). Invariant: a message that Taskiq has not acknowledged comes again.
Needs `pip install 'cometmq[taskiq]'`. Java: none
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
from cometmq.client.handling.handler_call import RetryLater
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.client.session.client_options import check_seconds
from cometmq.errors import NotStarted
from cometmq.model.message import Message

try:
    from taskiq import AckableMessage, AsyncBroker
except ModuleNotFoundError as error:
    if error.name != "taskiq":
        raise
    raise ImportError("cometmq.taskiq needs Taskiq: pip install 'cometmq[taskiq]'") from error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from cometmq.model.message import MessageExt
    from taskiq import BrokerMessage

_HELD_MAX = 100
"""Tasks that a worker holds at once, unless `consume_threads` says it."""


class CometTaskBroker(AsyncBroker):
    """Sends tasks to a topic, and gives them to workers of one consumer group.

    `namesrv` as for every client; `topic` is where tasks go, `group` the workers' consumer group
    (the topic's name). `client_settings` hold for all clients (access_key, secret_key, tls, ...),
    the other settings are those of `AsyncPushConsumer` for workers: `max_attempts` bounds how often
    a task comes that no worker acknowledged, `consume_timeout_s` (15 min) how long it may take
    before it is given to another worker as well.

    Results are kept by a result backend, as with every broker of Taskiq (`with_result_backend`).
    Labels: `delay` holds a task back for so many seconds (three days at most), `sharding_key` sends
    tasks of one key to one queue.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq",
        group: str | None = None,
        client_settings: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._group = group or topic
        self._client = {"namesrv": namesrv, **(client_settings or {})}
        self._settings = {"consume_threads": _HELD_MAX, "consume_from": "first", **settings}
        self._producer: AsyncProducer | None = None
        self._consumer: AsyncPushConsumer | None = None
        self._held: set[asyncio.Future[None]] = set()

    async def startup(self) -> None:
        """Connect. Raises the errors of `AsyncProducer.start`."""
        await super().startup()
        producer = AsyncProducer(f"{self._group}-kickers", **self._named("kicks"))
        await producer.start()
        self._producer = producer

    async def shutdown(self) -> None:
        """Leave the group; what is held and not acknowledged comes again, to another worker."""
        for one in list(self._held):
            if not one.done():
                one.set_exception(RetryLater("the worker ended before the task did"))
        consumer, self._consumer = self._consumer, None
        producer, self._producer = self._producer, None
        if consumer is not None:
            await consumer.stop()
        if producer is not None:
            await producer.stop()
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task and wait until a broker has stored it. Raises the errors of `send`."""
        if self._producer is None:
            raise NotStarted("this Taskiq broker is not running: await broker.startup() first")
        delay, key = message.labels.get("delay"), message.labels.get("sharding_key")
        if delay is not None:
            check_seconds("the label delay", delay := float(delay), may_be_zero=True)
        await self._producer.send(
            Message(
                self._topic,
                message.message,
                keys=[message.task_id],
                properties={"task": message.task_name},
                sharding_key=None if key is None else str(key),
                deliver_after=timedelta(seconds=delay) if delay else None,
            )
        )

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """The tasks for this worker, each until it is acknowledged."""
        arrived: asyncio.Queue[AckableMessage] = asyncio.Queue()  # bounded by consume_threads

        async def hold(messages: list[MessageExt]) -> None:
            for at, message in enumerate(messages):
                await self._hold(message, arrived, at)

        consumer = AsyncPushConsumer(self._group, **self._named("works"), **self._settings)
        consumer.subscribe(self._topic, "*", hold)
        await consumer.start()
        self._consumer = consumer
        while True:
            yield await arrived.get()

    async def _hold(
        self, message: MessageExt, arrived: asyncio.Queue[AckableMessage], done: int
    ) -> None:
        """Hand a task out and wait until Taskiq acknowledges it."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def acknowledge() -> None:
            if not ended.done():
                ended.set_result(None)

        self._held.add(ended)
        try:
            arrived.put_nowait(AckableMessage(data=message.body, ack=acknowledge))
            await ended
        except RetryLater as error:
            error.done = done
            raise
        finally:
            self._held.discard(ended)

    def _named(self, what: str) -> dict[str, Any]:
        return {"instance_name": f"taskiq-{id(self):x}-{what}", **self._client}
