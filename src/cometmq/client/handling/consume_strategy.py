"""The seam between an engine and its ways of handling messages.

Owns what a way of consuming must offer and what it may use; refuses to know any of them. Invariant:
a strategy alone takes messages out of a queue's window, and only when they need not come again.
Java: ConsumeMessageService
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consume_stats import ConsumeStats
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.failures.send_back import FailedMessageSender
    from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.model.message import MessageExt
    from cometmq.model.results import BlockedQueue
    from cometmq.runtime.background import Background
    from cometmq.runtime.ports import Clock, Files


class ConsumeStrategy(Protocol):
    """A way of handling messages. One loop owns it."""

    overlap_count: int
    """Messages whose results were discarded since another member may have had them as well."""

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start work on a queue that was just taken; its window is empty.

        Tasks put into `assigned.tasks` are watched: an error of one begins the queue anew.
        """

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Take newly pulled messages, which wait in the queue's window already (maybe none)."""

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the dropped queue; whether that was in time."""

    def blocked_queues(self) -> list[BlockedQueue]:
        """What stands still since a message keeps failing."""

    def running_info(self) -> dict[str, str]:
        """What operators should see in the running info, by name; called at any time."""

    def close(self) -> None:
        """Let go of what it holds for itself; called once, after all queues were given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """What a strategy may use."""

    options: ConsumerOptions
    subscriptions: Subscriptions
    threads: ThreadPool
    tasks: TaskPool
    failed_sender: FailedMessageSender
    offsets: OffsetStore
    background: Background
    stats: ConsumeStats
    clock: Clock
    restart_after_error: Callable[[AssignedQueue], None]
    """QueueStarter a queue anew after an error nobody foresaw."""
    restart_queue: Callable[[AssignedQueue], None]
    """Drops a queue without committing anything; it is begun anew at the committed offset."""
    locks: QueueLockClient | None = None
    """There for consumers that work under locks only, and not when the group is broadcast to."""
    files: Files
    namesrv: tuple[str, ...]
    stop_consumer: Callable[[str], None]
    """Stops the consumer soon, for the reason given."""


StrategyFactory = Callable[[StrategyContext], ConsumeStrategy]
