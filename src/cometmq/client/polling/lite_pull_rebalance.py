"""Rounds of rebalance of a polling consumer: shared queues, or those assigned by hand.

Java: RebalanceLitePullImpl, DefaultLitePullConsumerImpl.updateAssignPullTask
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.consumer.rebalance import Rebalance

if TYPE_CHECKING:
    from cometmq.client.polling.lite_pull_subscriptions import LitePullSubscriptions


class LitePullRebalance(Rebalance):
    """The rounds of one polling consumer. One loop owns it."""

    _subscriptions: LitePullSubscriptions

    async def _rebalance_topic(self, topic: str) -> bool:
        queues = self._subscriptions.queues
        if queues is None:
            return await super()._rebalance_topic(topic)
        await self._session.routes.subscribe_queues(topic)  # for the brokers' addresses
        own = sorted(queue for queue in queues if queue.topic == topic)
        return await self._assignment.assign(topic, own)
