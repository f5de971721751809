"""What an engine expects of a strategy of handling messages, and what it gives to one.

Knows none of the strategies: `concurrent`, `orderly`, `by_key`, and the buffer of polling
consumers. Invariant: only the strategy takes messages out of a queue's window, and only those that
need not come again.
Java: ConsumeMessageService
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.failures.failure_actions import FailureActions
    from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
    from cometmq.client.middleware.middleware import ReportRun
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.client.parking.key_drains import KeyDrains
    from cometmq.client.parking.parking_log import ParkingLogs
    from cometmq.model.message import MessageExt
    from cometmq.model.results import BlockedQueue
    from cometmq.runtime.background import BackgroundTasks
    from cometmq.runtime.clock_and_file_protocols import Clock, Files


class ConsumeStrategy(Protocol):
    """A strategy of handling messages. One loop owns it."""

    overlap_count: int
    """Messages whose results were discarded since another member may have had them as well."""

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start work on a queue that was just taken; its window is empty.

        Tasks put into `assigned.tasks` are watched: an error of one restarts the queue.
        """

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Take newly pulled messages, which wait in the queue's window already (maybe none)."""

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the dropped queue; whether that was in time."""

    def blocked_queues(self) -> list[BlockedQueue]:
        """The queues that are blocked by a message that keeps failing."""

    def waiting_keys(self, assigned: AssignedQueue, most: int) -> tuple[list[str], int]:
        """The keys of some of what waits in a queue, one for each message, and how many keys do.

        None without an order; no number unless by key.
        """

    def running_info(self) -> dict[str, str]:
        """What operators should see in the running info, by name; called at any time."""

    def resize(self, threads: int) -> None:
        """Run up to so many handlers at once from now on; those that run go on."""

    def close(self) -> None:
        """Release what it holds for itself; called once, after all queues were given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """What a strategy may use."""

    options: ConsumerOptions
    subscriptions: Subscriptions
    threads: ThreadPool
    tasks: TaskPool
    failed_sender: FailedMessageSender
    failure_actions: FailureActions
    offsets: OffsetStore
    background: BackgroundTasks
    report: ReportRun
    """Called on the loop with what handlers have done."""
    clock: Clock
    restart_after_error: Callable[[AssignedQueue], None]
    """Restarts a queue after an unforeseen error."""
    restart_queue: Callable[[AssignedQueue], None]
    """Drops a queue without committing anything; it restarts at the committed offset."""
    locks: QueueLockClient | None = None
    """Present where queues are locked: in order or by key, unless the group is broadcast to."""
    files: Files
    namesrv: tuple[str, ...]
    stop_consumer: Callable[[str], None]
    """Stops the consumer soon, for the reason given."""
    parking_logs: ParkingLogs | None = None
    """For policies that park keys, as is `key_drains`; None for who runs no push consumer."""
    key_drains: KeyDrains | None = None


StrategyFactory = Callable[[StrategyContext], ConsumeStrategy]
