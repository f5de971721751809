"""What one consumer says of its work, for `cometmq why`: handlers, pulls, limits, locks, keys.

Read only when somebody asks, but for the keys of what waits: of a few queues a second some are
counted, off the path of messages. Java: none.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from cometmq.model.group_work import MemberWork, QueueWork
from cometmq.rules.diagnosis.frequent_keys import FrequentKeys

if TYPE_CHECKING:
    from collections.abc import Set

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.consumer_statistics import ConsumerStatistics
    from cometmq.client.consumer.queue_assignment import QueueAssignment
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.handling.consume_strategy import ConsumeStrategy
    from cometmq.client.handling.worker_pools import TaskPool, ThreadPool

SAMPLE_S = 1.0
QUEUES_A_SAMPLE, KEYS_A_QUEUE = 8, 128
"""Queues whose keys are looked at in one sample, one after the other, and keys of each."""
_KEYS_SHOWN = 3
_KEYS_LEAST = 64
"""Of fewer keys no share is given: it would mean little."""

process_cpu_s = time.process_time
"""What this process has computed, seconds; tests put a clock of their own here."""


class WorkReport:
    """Gathers the work of one consumer. One loop owns it."""

    def __init__(
        self,
        options: ConsumerOptions,
        stats: ConsumerStatistics,
        assignment: QueueAssignment,
        strategy: ConsumeStrategy,
        pools: tuple[ThreadPool, TaskPool],
        failed_sender: FailedMessageSender,
        locks: QueueLockClient | None,
        lost: Set[str],
    ) -> None:
        self._options = options
        self._stats = stats
        self._assignment = assignment
        self._strategy = strategy
        self._pools = pools
        self._failed_sender = failed_sender
        self._locks = locks
        self._lost = lost
        self._keys: dict[AssignedQueue, FrequentKeys] = {}
        self._turns: deque[AssignedQueue] = deque()

    def sample_keys(self) -> None:
        """Count some keys of what waits; call it every `SAMPLE_S`."""
        if not self._options.is_locking:
            return
        if not self._turns:
            current = self._assignment.table.values()
            self._turns.extend(current)
            self._keys = {one: self._keys[one] for one in current if one in self._keys}
        for _ in range(min(QUEUES_A_SAMPLE, len(self._turns))):
            assigned = self._turns.popleft()
            if not assigned.is_dropped:
                counted = self._keys.setdefault(assigned, FrequentKeys())
                counted.add(self._strategy.waiting_keys(assigned, KEYS_A_QUEUE)[0])

    def work(self) -> MemberWork:
        """What the consumer has done since its start, and does now."""
        options, sender, totals = self._options, self._failed_sender, self._stats.totals()
        blocked = {one.queue: one for one in self._strategy.blocked_queues()}
        return MemberWork(
            order="key" if options.is_by_key else "queue" if options.orderly else "none",
            threads=self._pools[0].count,
            batch_size=options.batch_size,
            busy=sum(pool.busy for pool in self._pools),
            is_paused=self._assignment.is_paused,
            calls=totals.calls,
            busy_s=totals.busy_s,
            done=totals.done,
            failed=totals.failed,
            pulled=totals.pulled,
            pulls=totals.pulls,
            pull_s=totals.pull_s,
            retried=totals.retried,
            sent_back=sender.sent_back,
            sent_back_delay_s=sender.sent_back_delay_s,
            not_sent_back=sender.not_sent_back,
            cpu_s=process_cpu_s(),
            outages=tuple(self._strategy.running_info().get("OUTAGES", "").split()),
            lost=tuple(sorted(self._lost)),
            lock_holders=self._locks.holders() if self._locks is not None else {},
            queues={
                queue: self._queue(
                    assigned,
                    f"{one.msg_id} has failed {one.attempts} times: {one.reason}"
                    if (one := blocked.get(queue))
                    else "",
                )
                for queue, assigned in self._assignment.table.items()
            },
        )

    def _queue(self, assigned: AssignedQueue, blocked: str) -> QueueWork:
        keys = self._keys.get(assigned)
        return QueueWork(
            position=assigned.window.commit_offset,
            cached=assigned.window.count,
            limited_s=dict(assigned.limited_s),
            blocked=blocked,
            keys=keys.shares(_KEYS_SHOWN) if keys and keys.total >= _KEYS_LEAST else {},
            lanes=self._strategy.waiting_keys(assigned, 1)[1],
        )
