"""The namespace of a shared cluster: users see bare names, brokers see wrapped ones.

Owns the translation for consumers: names that a user gives are wrapped, and messages and queues
that a user gets are unwrapped. Refuses to know the rules (`rules/namespace`). Invariant: inside the
client every name is a wrapped one; a message given to a user is a copy where its name differs.
Java: ClientConfig.queueWithNamespace, DefaultMQPushConsumerImpl.resetRetryAndNamespace
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from cometmq.client.handling.handler_call import is_async
from cometmq.rules.namespace import with_namespace, without_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.handler_call import AsyncHandler, Handler, SyncHandler
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.rules.failures.failure_policy import FailurePolicy, Policies


class Namespace:
    """Translates names of one namespace, both ways; without one every name stays as it is."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    @property
    def is_set(self) -> bool:
        """Whether wrapped names differ from bare ones."""
        return self._namespace is not None

    def wrap(self, name: str) -> str:
        """A topic's name as brokers know it."""
        return with_namespace(self._namespace, name)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as brokers know it."""
        return queue._replace(topic=with_namespace(self._namespace, queue.topic))

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users know it."""
        return queue._replace(topic=without_namespace(self._namespace, queue.topic))

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues as users know them, in order."""
        return sorted(map(self.unwrap_queue, queues))

    def unwrap_message(self, message: MessageExt) -> MessageExt:
        """A message as users know it: another object when the name differs."""
        topic = without_namespace(self._namespace, message.topic)
        if topic == message.topic:
            return message
        unwrapped = copy(message)
        unwrapped.topic = topic
        return unwrapped

    def unwrap_messages(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Messages as users know them."""
        return messages if self._namespace is None else [self.unwrap_message(m) for m in messages]

    def wrap_subscriptions(self, subscriptions: Subscriptions) -> Subscriptions:
        """The same subscriptions, whose handlers get unwrapped messages."""
        wrapped = copy(subscriptions)
        wrapped.replace_handlers(
            lambda topic: self._handler(subscriptions.subscription_of(topic).handler)
        )
        return wrapped

    def wrap_policies(self, known: Policies | None) -> Policies | None:
        """The same policies, whose sinks get unwrapped messages."""
        if known is None or self._namespace is None:
            return known
        return {kind: self._policy(policy) for kind, policy in known.items()}

    def wrap_options(self, options: ConsumerOptions) -> ConsumerOptions:
        """The same options, whose functions get unwrapped messages."""
        if self._namespace is None:
            return options
        key = options.key
        if callable(key):
            key = self._key(key)
        return replace(options, key=key, on_failure=self.wrap_policies(options.on_failure))

    def _handler(self, handler: Handler) -> Handler:
        if is_async(handler):
            awaited = cast("AsyncHandler", handler)

            async def unwrapping(messages: list[MessageExt]) -> Any:
                return await awaited(self.unwrap_messages(messages))

            return unwrapping
        plain = cast("SyncHandler", handler)
        return lambda messages: plain(self.unwrap_messages(messages))

    def _policy(self, policy: FailurePolicy) -> FailurePolicy:
        sink = policy.sink
        if sink is None:
            return policy
        return replace(
            policy, sink=lambda message, failure: sink(self.unwrap_message(message), failure)
        )

    def _key(self, key: Callable[[MessageExt], Hashable]) -> Callable[[MessageExt], Hashable]:
        return lambda message: key(self.unwrap_message(message))
