"""Waiting for a blocking consumer to be stopped, by a signal for one.

Owns what a signal does to the thread that waits; refuses to know how a consumer stops. Invariant: a
signal handler never waits for the loop, which may itself wait for the interrupted thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.client.consumer.stop_signals import stop_signals
from cometmq.errors import NotStarted

if TYPE_CHECKING:
    from cometmq.client.blocking.bridge import BlockingBridge
    from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer


def wait(bridge: BlockingBridge, consumer: AsyncPushConsumer, timeout_s: float | None) -> bool:
    """Wait until the consumer is stopped, here or by another thread; whether it is."""
    if not bridge.is_started:
        return True
    loop_thread = bridge.loop_thread
    with stop_signals(lambda name: loop_thread.post(partial(consumer.stop_soon, name))):
        try:
            return loop_thread.call(consumer.wait(timeout_s))
        except NotStarted:  # another thread has stopped it, and its loop has ended
            return True
