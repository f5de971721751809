"""The orderly strategy by itself."""

import asyncio

from cometmq import BreakerLimits
from cometmq.client.consumer import message_decoder as decode
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.handling.orderly import OrderlyStrategy
from cometmq.model.queue import MessageQueue
from cometmq.rules.failures.circuit_breaker import CircuitBreaker
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

HOST = b"\x0a\0\0\2\0\0\x2a\x9f"


def record(body=b"hello", topic="T1", sys_flag=0, pairs=None, offset=0):
    raw = properties.encode(pairs or {})
    return stored.encode(topic, 3, 9, offset, 1234, sys_flag, 17, HOST, 19, HOST, 1, 0, body, raw)


def message(**more):
    (found,), is_whole, _ = decode.decode_messages(record(**more), "b0")
    assert is_whole
    return found


def test_an_orderly_queue_whose_lock_has_expired_retries_nothing_in_an_outage():
    async def scenario():
        consume = object.__new__(OrderlyStrategy)
        consume._held = set()
        assigned = AssignedQueue(MessageQueue("T1", "b0", 3), 0)
        assigned.window.put([message()], 1)
        assert not consume._may_probe(assigned, CircuitBreaker(BreakerLimits()))

    asyncio.run(scenario())
