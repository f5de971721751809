"""A broker for Taskiq: tasks as messages of one topic, kept until they are acknowledged.

Owns how a task becomes a message and an acknowledgement ends its delivery; refuses to know results
(a result backend keeps them). Invariants: a message that Taskiq has not acknowledged comes again;
one that it has acknowledged does not, unless the worker ends without a stop.
Needs `pip install 'cometmq[taskiq]'`. Java: none
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
from cometmq.client.consumer.push_options import push_options
from cometmq.client.handling.handler_call import RetryLater
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.client.session.client_identity import unique_instance_name
from cometmq.client.session.client_options import CLIENT_SETTINGS, check_seconds
from cometmq.errors import NotStarted, SettingsError
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
_AGAIN_S = 0.1
"""How often a stop looks for tasks that arrived meanwhile."""


class CometTaskBroker(AsyncBroker):
    """Sends tasks to a topic, and gives them to workers of one consumer group.

    `namesrv` as for every client; `topic` is where tasks go, `group` the workers' consumer group
    (the topic's name). `client_settings` hold for all clients (access_key, secret_key, tls, ...),
    and may be given among the other settings, too. Those are of `AsyncPushConsumer`, for workers:
    `max_attempts` bounds how often a task comes that no worker acknowledged, `consume_timeout_s`
    (15 min) how long it may take before it is given to another worker as well. Raises SettingsError
    for a setting that is wrong or unknown.

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
        shared = {name: settings.pop(name) for name in CLIENT_SETTINGS & settings.keys()}
        self._client = {"namesrv": namesrv, **(client_settings or {}), **shared}
        self._settings = {"consume_threads": _HELD_MAX, "consume_from": "first", **settings}
        checked: Any = self._client | self._settings | {"namesrv": "known-at-the-start:9876"}
        push_options(self._group, checked, os.environ)
        self._producer: AsyncProducer | None = None
        self._consumer: AsyncPushConsumer | None = None
        self._listeners = 0
        self._arrived: asyncio.Queue[_HeldTask] = asyncio.Queue()  # bounded by consume_threads
        self._held: set[_HeldTask] = set()

    async def startup(self) -> None:
        """Connect, unless it is connected. Raises the errors of `AsyncProducer.start`."""
        await super().startup()
        if self._producer is not None:
            return
        self._producer = producer = AsyncProducer(f"{self._group}-kickers", **self._named("kicks"))
        is_started = False
        try:
            await producer.start()
            is_started = True
        finally:
            if not is_started:
                self._producer = None

    async def shutdown(self) -> None:
        """Leave the group; what is held and not acknowledged comes again, to another worker."""
        consumer, self._consumer = self._consumer, None
        producer, self._producer = self._producer, None
        try:
            if consumer is not None:
                await self._leave(consumer)
        finally:
            try:
                if producer is not None:
                    await producer.stop()
            finally:
                await super().shutdown()

    async def _leave(self, consumer: AsyncPushConsumer) -> None:
        """Stop a consumer: it sends back what was handed out; the rest has not been touched."""
        consumer.pause()
        handed_out = [one for one in self._held if one.is_handed_out]
        for one in handed_out:
            one.give_back()
        while self._held.intersection(handed_out):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(consumer.stop())
        try:
            while not stopping.done():
                await asyncio.wait((stopping,), timeout=_AGAIN_S)
                for one in list(self._held):
                    one.give_back()
        except asyncio.CancelledError:
            stopping.cancel()  # it leaves at once
            await asyncio.wait((stopping,))
            raise
        stopping.result()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task and wait until a broker has stored it. Raises the errors of `send`."""
        if self._producer is None:
            raise NotStarted("this Taskiq broker is not running: await broker.startup() first")
        delay, key = message.labels.get("delay"), message.labels.get("sharding_key")
        if delay is not None:
            delay = _seconds(delay)
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
        """The tasks for this worker, each until it is acknowledged.

        Whoever listens again gets what was not handed out. While nobody listens no further tasks
        come. Raises the errors of `AsyncPushConsumer.start`.
        """
        self._listeners += 1
        try:
            if self._consumer is None:
                await self._join()
            else:
                self._consumer.resume()
            while True:
                task = await self._arrived.get()
                if not task.ended.done():
                    task.is_handed_out = True
                    yield AckableMessage(data=task.message.body, ack=task.acknowledge)
        finally:
            self._listeners -= 1
            if self._consumer is not None and not self._listeners:
                self._consumer.pause()

    async def _join(self) -> None:
        """Join the group."""
        self._arrived = asyncio.Queue()
        consumer = AsyncPushConsumer(self._group, **self._named("works"), **self._settings)
        consumer.subscribe(self._topic, "*", self._hold)
        self._consumer, is_started = consumer, False
        try:
            await consumer.start()
            is_started = True
        finally:
            if not is_started:
                self._consumer = None

    async def _hold(self, messages: list[MessageExt]) -> None:
        """Hand tasks out, and wait for each until Taskiq acknowledges it."""
        for done, message in enumerate(messages):
            task = _HeldTask(message)
            self._held.add(task)
            try:
                self._arrived.put_nowait(task)
                await task.ended
            except RetryLater as error:
                error.done = done
                raise
            finally:
                self._held.discard(task)

    def _named(self, what: str) -> dict[str, Any]:
        """The settings of a client; made when it starts, as forked workers share this object."""
        return {"instance_name": f"taskiq-{unique_instance_name()}-{what}", **self._client}


class _HeldTask:
    """A task from its arrival to its end. Belongs to the loop that it arrived on."""

    __slots__ = ("ended", "is_handed_out", "message")

    def __init__(self, message: MessageExt) -> None:
        self.message = message
        self.is_handed_out = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def acknowledge(self) -> None:
        """Count the task as done; changes nothing once it has ended."""
        if not self.ended.done():
            self.ended.set_result(None)

    def give_back(self) -> None:
        """Have the task come again."""
        if not self.ended.done():
            self.ended.set_exception(RetryLater("the worker ended before the task did"))


def _seconds(delay: object) -> float:
    """The label `delay`. Raises SettingsError unless it is a number of seconds, 0 or more."""
    try:
        found = float(delay)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SettingsError(
            f"the label delay is {delay!r}; it must be a number of seconds"
        ) from None
    check_seconds("the label delay", found, may_be_zero=True)
    return found
