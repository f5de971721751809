"""Handles the messages of one task with the strategies of a push consumer.

Owns the queues of the task, how many messages it holds, and when it gives up; what is handled when,
and what follows a failure, is decided where a push consumer has it decided (`client/handling`,
`rules/failures`). Offsets are Spark's: nothing is committed here, and no queue is locked, since
Spark gives each queue to one task at a time.
Invariants: `finish` returns only when every message is done, was given up by its policy, or lies at
a broker; it never waits longer than `wait_most_s` while no handler runs and nothing gets done.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.push_engine import strategy_of
from cometmq.client.consumer.queue_lease import FOR_EVER
from cometmq.client.consumer.subscriptions import Subscriptions
from cometmq.client.failures.failure_actions import FailureActions
from cometmq.client.handling.consume_strategy import StrategyContext
from cometmq.client.handling.handler_call import NotHandled
from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.errors import BatchNotHandled
from cometmq.model.selector import MessageSelector
from cometmq.rules.failures.failure_policy import OnFailure
from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.spark.handling.running_calls import RunningCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.handling.worker_client import WorkerClient

log = logging.getLogger(__name__)

_HELD_MAX, _HELD_BYTES_MAX = 10_000, 64 * 1024 * 1024
_PAUSE_FIRST_S, _PAUSE_GROWTH, _PAUSE_MOST_S = 0.0005, 1.25, 0.004


class BatchEngine:
    """The handling of one task's messages. Belongs to the loop it was made on."""

    def __init__(self, worker: WorkerClient, state_dir: str | None) -> None:
        """`state_dir` is a directory of this task alone, removed after it; None: none is needed."""
        self._options = worker.options
        self._wait_most_s = worker.job.wait_most_s
        self._calls = RunningCalls()
        self._background = BackgroundTasks(f"handlers of {worker.options.group}")
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._diverted = worker.diverted
        self._problem = ""
        self._taken = 0
        self._context = _context(worker, self, state_dir)
        self._strategy = strategy_of(worker.options)(self._context)

    @property
    def taken(self) -> int:
        """How many messages were taken."""
        return self._taken

    @property
    def background(self) -> BackgroundTasks:
        """What runs beside the handlers until `close`."""
        return self._background

    @property
    def calls(self) -> RunningCalls:
        """The calls of the handler that run now."""
        return self._calls

    async def add(
        self, queue: MessageQueue, messages: Sequence[MessageExt], *, has_unreadable: bool
    ) -> None:
        """Take the next messages of a queue, once there is room. Raises BatchNotHandled."""
        brokers = {known.broker_name for known in self._queues}
        if self._diverted is not None and queue.broker_name not in brokers:
            await self._diverted.refresh(queue.broker_name, self._wait_most_s)
        assigned = self._queues.get(queue) or self._start_queue(queue, messages[0].queue_offset)
        assigned.has_unreadable |= has_unreadable
        await self._wait_until(lambda: self._has_room(assigned))
        accepted = assigned.window.put(messages, messages[-1].queue_offset + 1)
        assert len(accepted) == len(messages), "a task reads each message once, in order"
        self._taken += len(accepted)
        self._strategy.add_messages(assigned, accepted)

    async def finish(self) -> None:
        """Wait until no message is left. Raises BatchNotHandled when that cannot be."""
        await self._wait_until(lambda: not self._held)

    async def close(self) -> None:
        """Begin nothing more, and wait for handlers that run, for `stop_timeout_s` at most."""
        for assigned in self._queues.values():
            assigned.drop()
        timeout_s = self._options.stop_timeout_s
        drains = (self._strategy.drain_queue(one, timeout_s) for one in self._queues.values())
        await asyncio.gather(*drains)
        for assigned in self._queues.values():
            assigned.cancel_tasks()
        self._strategy.close()
        await self._background.stop()

    def fail(self, reason: str) -> None:
        """Give the batch up soon; the first reason counts."""
        self._problem = self._problem or reason

    @property
    def _held(self) -> int:
        return sum(assigned.window.count for assigned in self._queues.values())

    def _has_room(self, assigned: AssignedQueue) -> bool:
        held_bytes = sum(one.window.size_bytes for one in self._queues.values())
        is_far = self._options.is_by_key and assigned.span > self._options.flow.span
        return self._held < _HELD_MAX and held_bytes < _HELD_BYTES_MAX and not is_far

    def _start_queue(self, queue: MessageQueue, offset: int) -> AssignedQueue:
        assigned = self._queues[queue] = AssignedQueue(queue, offset)
        assigned.lock = FOR_EVER
        self._strategy.start_queue(assigned)
        for task in assigned.tasks:
            task.add_done_callback(self._check_task)
        return assigned

    def _check_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("%s broke off", task.get_name(), exc_info=error)
            self.fail(f"{task.get_name()} broke off: {error!r}")

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait, as long as messages get done or the handler runs at least now and then."""
        loop = asyncio.get_running_loop()
        idle_s, held, pause_s, at = 0.0, self._held, _PAUSE_FIRST_S, loop.time()
        while not self._problem and not condition():
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _PAUSE_GROWTH, _PAUSE_MOST_S)
            now, before, held = loop.time(), held, self._held
            has_progress = held != before
            idle_s = 0.0 if has_progress else idle_s + (now - at) * (not self._calls.are_running)
            at = now
            if idle_s > self._wait_most_s:
                self.fail(self._stuck())
        if self._problem:
            raise BatchNotHandled(self._problem)

    def _stuck(self) -> str:
        """Say why nothing got done for so long."""
        blocked = self._strategy.blocked_queues()
        outages = self._strategy.running_info().get("OUTAGES")
        what = "a broker or a sink does not take what failed"
        if outages:
            what = f"the handler fails for many keys of {outages}, which counts as an outage"
        elif blocked:
            what = f"{blocked[0].queue} waits for offset {blocked[0].queue_offset}, which fails: "
            what += blocked[0].reason
        return (
            f"no message was finished for wait_most_s={self._wait_most_s:g} and no handler ran; "
            f"{self._held} are left: {what}"
        )


class _NoOffsets(OffsetStore):
    """The offsets of a task: Spark's checkpoint has them, and the source commits them."""

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """Nothing: the batch counts as a whole."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Nothing: the batch counts as a whole."""


def _context(worker: WorkerClient, engine: BatchEngine, state_dir: str | None) -> StrategyContext:
    job, session, options = worker.job, worker.session, worker.options
    if state_dir is not None:
        options = replace(options, state_dir=Path(state_dir))
    subscriptions = Subscriptions(options.group)
    handler, known = engine.calls.counted(worker.handler), dict(options.on_failure or {})
    if worker.diverted is not None:
        handler = worker.diverted.guarded(handler)
        known[NotHandled] = OnFailure.divert()
    subscriptions.add(job.topic, MessageSelector.by_tag("*"), handler)
    actions = FailureActions(
        known,
        worker.failed_sender,
        worker.threads,
        session.clock,
        engine.fail,
        worker.diverted.divert if worker.diverted else None,
    )
    return StrategyContext(
        options=options,
        subscriptions=subscriptions,
        threads=worker.threads,
        tasks=worker.tasks,
        failed_sender=worker.failed_sender,
        failure_actions=actions,
        offsets=_NoOffsets(session, options.group, options.consume_from, None),
        background=engine.background,
        report=lambda *_: None,
        clock=session.clock,
        restart_after_error=lambda one: engine.fail(f"the work on {one.queue} broke off"),
        restart_queue=lambda one: engine.fail(f"the work on {one.queue} broke off"),
        files=SystemFiles(),
        namesrv=job.client.namesrv,
        stop_consumer=engine.fail,
    )
