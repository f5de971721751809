"""Blocking sends that are more than a call over the bridge.

Owns the sends on the caller's own thread, and the local transaction that runs there; refuses to
know connections and retries. Invariant: what the user's thread cannot do itself is done by the
asyncio producer, with what is left of the time.
"""

from __future__ import annotations

import time
from functools import partial
from inspect import iscoroutinefunction
from threading import get_ident
from typing import TYPE_CHECKING, cast

from cometmq.client.blocking.joined_send import send_joined
from cometmq.client.producer.message_checks import check_kind, check_timeout, message_list
from cometmq.client.producer.thread_sender import FailedBatch, FailedSend
from cometmq.client.producer.transactions import state_of
from cometmq.client.session.argument_checks import check_function
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult, TransactionResult, TransactionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cometmq.client.blocking.bridge import BlockingBridge
    from cometmq.client.producer.async_producer import AsyncProducer
    from cometmq.client.producer.producer_options import TransactionVerdict
    from cometmq.client.producer.queue_selector import SelectQueue
    from cometmq.client.producer.send_pipeline import SendPipeline
    from cometmq.model.message import Message


def send(
    bridge: BlockingBridge,
    producer: AsyncProducer,
    message: Message,
    timeout_s: float,
    queue: MessageQueue | SelectQueue | None,
) -> SendResult:
    """Send on this thread's own connection where that is possible, else on the loop thread."""
    if not bridge.is_started:
        return bridge.call(producer.send(message, timeout_s, queue=queue))  # raises NotStarted
    check_timeout(timeout_s)
    hooks = producer.pipeline.hooks
    if hooks is None:
        return _send_in_thread(bridge, producer.pipeline, message, timeout_s, queue)
    if not hooks.are_plain:
        return bridge.call(producer.send(message, timeout_s, queue=queue))
    check_kind(message)
    work = partial(_send_in_thread, bridge, producer.pipeline, message, timeout_s, queue)
    return hooks.around_in_thread(message, work, queue if isinstance(queue, MessageQueue) else None)


def _send_in_thread(
    bridge: BlockingBridge,
    pipeline: SendPipeline,
    message: Message,
    timeout_s: float,
    queue: MessageQueue | SelectQueue | None,
) -> SendResult:
    """Send as is quickest, else over the bridge with the time that is left.

    Few threads send on connections of their own, many join their sends on those of the loop.
    """
    begun = time.monotonic()
    if queue is not None:
        check_kind(message)
        return bridge.call(pipeline.send(message, queue, begun + timeout_s))
    # timeout_s as it was given: a socket whose timeout changes costs a system call a send
    attempt_s = pipeline.attempt_s
    first_s = timeout_s if attempt_s is None else min(timeout_s, attempt_s)
    sender, me = pipeline.thread_sender, get_ident()
    sender.inside.add(me)
    try:
        if sender.is_crowded:
            sent = send_joined(bridge.loop_thread, pipeline.fast_path, message, first_s)
        else:
            sent = sender.send(message, first_s)
    finally:
        sender.inside.discard(me)
    if type(sent) is SendResult:
        return sent
    deadline = begun + timeout_s
    if type(sent) is FailedSend:
        return bridge.call(pipeline.send_after_failure(message, sent, deadline))
    check_kind(message)
    # the search for a connection may have taken some of the time
    deadline = max(deadline, time.monotonic() + 0.001)
    return bridge.call(pipeline.send(message, None, deadline))


def send_batch(
    bridge: BlockingBridge,
    producer: AsyncProducer,
    messages: Iterable[Message],
    timeout_s: float,
) -> list[SendResult]:
    """Send a plain list in one frame on this thread's own connection, others over the bridge."""
    if not bridge.is_started or producer.pipeline.hooks is not None:
        return bridge.call(producer.send_batch(messages, timeout_s))  # raises NotStarted
    check_timeout(timeout_s)
    found = messages.copy() if type(messages) is list else message_list(messages)
    begun, pipeline = time.monotonic(), producer.pipeline
    attempt_s = pipeline.attempt_s
    first_s = timeout_s if attempt_s is None else min(timeout_s, attempt_s)
    sent = pipeline.thread_sender.send_batch(found, first_s)
    if type(sent) is list:
        return sent
    deadline = begun + timeout_s
    if type(sent) is FailedBatch:
        again = pipeline.batch_sender.send_after_failure(sent, deadline, pipeline.retries)
        return bridge.call(again)
    left_s = max(deadline - time.monotonic(), 0.001)
    return bridge.call(producer.send_batch(found, left_s))


def send_in_transaction(
    bridge: BlockingBridge,
    producer: AsyncProducer,
    message: Message,
    local: Callable[[Message], TransactionVerdict | Awaitable[TransactionVerdict]],
    timeout_s: float,
) -> TransactionResult:
    """Send a half message, and run a plain `local` on this thread, an async one on the loop."""
    check_function("local", local, "a function of the message")
    if iscoroutinefunction(local):
        return bridge.call(producer.send_in_transaction(message, local, timeout_s))
    state = TransactionState.UNKNOWN
    transaction = producer.transaction()
    sent = bridge.call(transaction.send(message, timeout_s))
    try:
        state = state_of(cast("TransactionVerdict", local(message)))
    finally:
        bridge.call(transaction.end(state, timeout_s))
    return TransactionResult(sent, state)
