"""From a sharding key's hash code to a queue, the way every RocketMQ producer does it.

Owns the arithmetic of Java's int (32-bit wrap, truncated remainder); knows nothing of routes.
Invariant: a Java producer and ours choose the same queue for the same key and queue count.
Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash
"""

from __future__ import annotations


def queue_index(hash_code: int, queue_count: int) -> int:
    """The index of the queue for a 32-bit hash code: |hash_code rem queue_count|.

    Java's remainder keeps the sign of the dividend, so its absolute value is that of |hash_code|.
    """
    assert -0x80000000 <= hash_code <= 0x7FFFFFFF, "a hash code has 32 bits"
    assert queue_count > 0, "a topic has queues"
    return abs(hash_code) % queue_count


def long_hash(value: int) -> int:
    """Java's hash code of a Long; of an Integer it is the number itself."""
    bits = value & 0xFFFFFFFFFFFFFFFF
    folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    return folded - 0x100000000 if folded & 0x80000000 else folded


def hash_of_number(value: int, is_long: bool) -> int:
    """Java's hash code of an Integer, or of a Long if `is_long` or beyond 32 bits."""
    if is_long or not -0x80000000 <= value <= 0x7FFFFFFF:
        return long_hash(value)
    return value
