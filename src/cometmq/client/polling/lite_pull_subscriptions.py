"""What a polling consumer receives: topics that its group shares, or queues assigned by hand.

Invariant: topics of queues that are no longer assigned stay in the rounds, so that those queues are
given away.
Java: DefaultLitePullConsumerImpl.assign, AssignedMessageQueue
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.consumer.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.selector import MessageSelector


class LitePullSubscriptions(Subscriptions):
    """Topics whose queues are shared out, or queues assigned by hand; no retry topic."""

    def __init__(self, group: str) -> None:
        super().__init__(group, broadcasting=True)
        self.queues: frozenset[MessageQueue] | None = None
        """The queues assigned by hand; None: queues of the topics are shared out."""
        self._leaving_topics: set[str] = set()

    def subscribe(self, topic: str, selector: MessageSelector) -> None:
        """Receive the messages of `topic` that the selector takes."""
        self.add(topic, selector, _no_handler)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Receive these queues, and no others."""
        self._leaving_topics |= {queue.topic for queue in self.queues or ()}
        self.queues = frozenset(queues)

    def freeze(self, version_ms: int) -> None:
        """Give the subscriptions their version; there may be none."""
        self._version = version_ms

    @property
    def topics(self) -> list[str]:
        """The topics to rebalance in a round."""
        if self.queues is None:
            return super().topics
        return sorted({queue.topic for queue in self.queues} | self._leaving_topics)


def _no_handler(messages: Sequence[MessageExt]) -> None:
    """The handler of a consumer that has none."""
