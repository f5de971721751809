"""Deleting a topic in steps, so that a crash between any two of them leaves all of it or nothing.

`begin` puts the mark on disk; from then on a restart completes the deletion. Then the caller
removes the topic's settings, durably. `end` removes the queues and changes the mark. A worker
thread writes the files. Refuses to know topics' settings.
Invariants: no queue is removed before the mark that says so is on disk; a mark is made of what is
written, so that no message put later lies below it.
Java: DefaultMessageStore.deleteTopics, which has no such steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.runtime.worker_jobs import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cometmq.runtime.clock_and_file_protocols import Worker
    from cometmq.store.maintenance import Maintenance
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.queues.deleted_topics import DeletedTopic


class TopicDeletion:
    """The deletions of one store. Belongs to its loop; one call at a time."""

    def __init__(
        self,
        queues: ConsumeQueues,
        maintenance: Maintenance,
        worker: Worker,
        write_now: Callable[[], None],
    ) -> None:
        """`write_now` writes the messages that were put so far, or takes them back."""
        self._write_now = write_now
        self._queues = queues
        self._maintenance = maintenance
        self._worker = worker
        self._former: dict[str, DeletedTopic | None] = {}
        """Of topics whose deletion has begun: the mark of an earlier deletion."""

    def topics(self) -> set[str]:
        """The topics that have queues, which are what there is to delete."""
        return {queue.topic for queue in self._queues}

    def unfinished(self) -> list[str]:
        """Topics whose deletion a crash cut short. For the start: end them with `delete_topic`."""
        return self._queues.deletions.begun()

    async def begin(self, topics: Collection[str]) -> None:
        """Make it durable that these topics will go. OSError: they will not."""
        deletions = self._queues.deletions
        self._write_now()
        for topic in topics:
            mark = self._maintenance.deletion_mark(topic)._replace(is_begun=1)
            self._former[topic] = deletions.set(topic, mark)
        try:
            await run_job(self._worker, deletions.writing())
        except OSError:
            await self.take_back(topics)
            raise

    async def take_back(self, topics: Collection[str]) -> None:
        """They will not go; should the disk refuse that, it is written as soon as it can be."""
        deletions = self._queues.deletions
        for topic in topics:
            deletions.set(topic, self._former.pop(topic, None))
        try:
            await run_job(self._worker, deletions.writing())
        except OSError:
            deletions.is_stale = True

    async def end(self, topics: Collection[str]) -> None:
        """Delete the queues of topics whose settings are gone, durably.

        OSError: the queues are gone, but the mark still says begun, and a restart would delete the
        topics a second time. Do not create them before another call of `end` succeeds.
        """
        deletions = self._queues.deletions
        self._write_now()
        marks = {topic: self._maintenance.deletion_mark(topic) for topic in topics}
        self._queues.remove_topics(topics)
        assert self.topics().isdisjoint(topics), "a deleted topic has queues"
        self._maintenance.checkpoint_soon()
        for topic, mark in marks.items():
            deletions.set(topic, mark)
            self._former.pop(topic, None)
        try:
            await run_job(self._worker, deletions.writing())
        except OSError:
            for topic, mark in marks.items():
                deletions.set(topic, mark._replace(is_begun=1))
            raise
