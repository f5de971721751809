"""The orderly strategy by itself."""

import asyncio

from client.received_messages import received
from cometmq import BreakerLimits
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.handling.orderly import OrderlyStrategy
from cometmq.model.queue import MessageQueue
from cometmq.rules.failures.circuit_breaker import CircuitBreaker


def test_an_orderly_queue_whose_lock_has_expired_retries_nothing_in_an_outage():
    async def scenario():
        consume = object.__new__(OrderlyStrategy)
        consume._held = set()
        assigned = AssignedQueue(MessageQueue("T1", "b0", 3), 0)
        assigned.window.put([received()], 1)
        assert not consume._may_probe(assigned, CircuitBreaker(BreakerLimits()))

    asyncio.run(scenario())
