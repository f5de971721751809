"""The instance of a shared cluster, seen by consumers: bare names outside, wrapped ones inside.

Owns the door between both: what a user names is wrapped when it comes in, and messages and queues
are shown with bare names when they go out. Refuses to know the rules (`rules/namespace`).
Invariant: all behind the door have the names that brokers know; what users hold is a copy.
Java: ClientConfig.queueWithNamespace, DefaultMQPushConsumerImpl.resetRetryAndNamespace
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from cometmq.client.handling.handler_call import is_async
from cometmq.rules.namespace import unwrap, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.handler_call import AsyncHandler, Handler, SyncHandler
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.rules.failure_policy import FailurePolicy, Policies


class Instance:
    """The names of one instance, both ways; without one every name stays as it is."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    @property
    def is_there(self) -> bool:
        """Whether names differ at all."""
        return self._namespace is not None

    def inner(self, name: str) -> str:
        """A topic's name as brokers know it."""
        return wrap(self._namespace, name)

    def inner_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as brokers know it."""
        return queue._replace(topic=wrap(self._namespace, queue.topic))

    def outer_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users know it."""
        return queue._replace(topic=unwrap(self._namespace, queue.topic))

    def outer_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues as users know them, in order."""
        return sorted(map(self.outer_queue, queues))

    def outer_message(self, message: MessageExt) -> MessageExt:
        """A message as users know it: another object when the name differs."""
        topic = unwrap(self._namespace, message.topic)
        if topic == message.topic:
            return message
        shown = copy(message)
        shown.topic = topic
        return shown

    def outer_messages(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Messages as users know them."""
        return messages if self._namespace is None else [self.outer_message(m) for m in messages]

    def over(self, subscriptions: Subscriptions) -> Subscriptions:
        """The same subscriptions, each handler behind the door."""
        told = copy(subscriptions)
        told.replace_handlers(
            lambda topic: self._through(subscriptions.subscription_of(topic).handler)
        )
        return told

    def policies(self, known: Policies | None) -> Policies | None:
        """The same policies, each sink behind the door."""
        if known is None or self._namespace is None:
            return known
        return {kind: self._policy(policy) for kind, policy in known.items()}

    def options(self, options: ConsumerOptions) -> ConsumerOptions:
        """The same options, with the functions a user gave behind the door."""
        if self._namespace is None:
            return options
        key = options.key
        if callable(key):
            key = self._key(key)
        return replace(options, key=key, on_failure=self.policies(options.on_failure))

    def _through(self, handler: Handler) -> Handler:
        if is_async(handler):
            told = cast("AsyncHandler", handler)

            async def shown(messages: list[MessageExt]) -> Any:
                return await told(self.outer_messages(messages))

            return shown
        plain = cast("SyncHandler", handler)
        return lambda messages: plain(self.outer_messages(messages))

    def _policy(self, policy: FailurePolicy) -> FailurePolicy:
        sink = policy.sink
        if sink is None:
            return policy
        return replace(
            policy, sink=lambda message, failure: sink(self.outer_message(message), failure)
        )

    def _key(self, key: Callable[[MessageExt], Hashable]) -> Callable[[MessageExt], Hashable]:
        return lambda message: key(self.outer_message(message))
