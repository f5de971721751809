"""What a worker process keeps of a query from batch to batch: its handler and its client.

Owns the unpickled handler, so that what it opens lives as long as the process, the threads in which
it runs, and the connections over which failed messages go back. Used by the task's thread; the rest
runs on the loop of the process's loop thread. Invariant: one client for each query a process, made
in that process: a fork shares no socket and no thread.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.client.blocking.event_loop_thread import EventLoopThread
from cometmq.client.failures.failed_message_sender import FailedMessageSender
from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.client.session.client_session import ClientSession
from cometmq.errors import CometError
from cometmq.model.group import INNER_PRODUCER_GROUP
from cometmq.rules.failures.retry_policy import reconsume_times_max
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.handling.diverted_keys import DivertedShardingKeys
from cometmq.spark.handling.handler_settings import diverts

if TYPE_CHECKING:
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.handling.handler_call import Handler
    from cometmq.spark.handling.handler_settings import HandlerJob

log = logging.getLogger(__name__)

_CLIENTS_MAX = 4
_ARCHIVES = (".zip", ".egg", ".whl")


class WorkerClient:
    """The client of one query in this process; made by `worker_client_of`."""

    session: ClientSession
    threads: ThreadPool
    tasks: TaskPool
    failed_sender: FailedMessageSender
    diverted: DivertedShardingKeys | None = None
    """Present where a policy diverts keys."""

    def __init__(self, job: HandlerJob) -> None:
        from pyspark import cloudpickle

        _reach_py_files()
        self.job = job
        unpickled: tuple[Handler, ConsumerOptions] = cloudpickle.loads(job.pickled)
        self.handler, self.options = unpickled
        self.loop_thread = EventLoopThread.enter()
        self.loop_thread.call(self._start())

    def close(self) -> None:
        """Close threads and connections."""
        try:
            self.loop_thread.call(self._stop())
        finally:
            self.loop_thread.leave()

    async def _start(self) -> None:
        job, options = self.job, self.options
        self.session = session = ClientSession(job.secured_client(), SystemClock())
        self.threads = ThreadPool(options.consume_threads, f"cometmq-{options.group}")
        self.tasks = TaskPool(options.consume_threads)
        delivery = RetryingSender(session, ProducerOptions(group=INNER_PRODUCER_GROUP))
        times_max = reconsume_times_max(options.max_attempts, orderly=options.is_locking)
        self.failed_sender = FailedMessageSender(
            session, delivery, QueueSelector(os.getpid()), options.group, times_max
        )
        if diverts(options):
            self.diverted = DivertedShardingKeys(session, options, self.failed_sender)
        refresh_s = job.client.route_refresh_s
        session.background.every(refresh_s, session.routes.refresh, name="routes")
        try:
            await session.routes.subscribe_queues(job.topic)  # where its brokers are
        except CometError as error:
            log.warning("the route of %s is not known yet: %s", job.topic, error)

    async def _stop(self) -> None:
        self.threads.close()
        self.tasks.close()
        await self.session.stop()


def _reach_py_files() -> None:
    """Make what `addPyFile` brought importable: in reading tasks Spark does so for single modules.

    What is no archive of modules does no harm at the end of the path.
    """
    from pyspark import SparkFiles, TaskContext

    if TaskContext.get() is None:
        return
    root = Path(SparkFiles.getRootDirectory())
    archives = (str(one) for one in sorted(root.iterdir()) if one.suffix in _ARCHIVES)
    sys.path += [one for one in archives if one not in sys.path]


_clients: dict[str, WorkerClient] = {}
_owner = 0


def worker_client_of(job: HandlerJob) -> WorkerClient:
    """This process's client of a query, kept for its next batches; of a few queries at most."""
    global _owner
    if _owner != os.getpid():
        _clients.clear()
        _owner = os.getpid()
    while len(_clients) >= _CLIENTS_MAX and job.job_id not in _clients:
        _clients.pop(next(iter(_clients))).close()
    if job.job_id not in _clients:
        _clients[job.job_id] = WorkerClient(job)
    return _clients[job.job_id]


def forget_worker_clients() -> None:
    """Close all clients of this process."""
    while _clients:
        _clients.popitem()[1].close()
