"""A group that starts amid the first sends to a topic gets all of them, in the Java client too.

The client asks for its offset of each queue (14) and, where it has none, for the queue's end (30).
What is stored between these two answers is before the end: it is lost to the group, unless the
first answer is the end already. Here the sends to a topic begin once its group has asked the first
question, and the second is answered when the queue it is about has a message: so the old kind of
first answer loses messages however fast the machine is, and the test could fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from cometmq.broker.groups.offset_requests import OffsetRequestHandler
from cometmq.testing.cluster import InProcessCluster
from oracle_runs import record_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Reply
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.wire.command import Command
    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
STARTS, QUEUES = 50, 16
ANSWER_WITHIN_S, POLL_S = 20, 0.01
"""How long the second answer waits: less than the client does."""
REPLAY = "pytest -m interop tests/interop/test_new_groups.py"


class Questions:
    """Counts what the clients asked, and answers the second question when messages have come."""

    def __init__(self, patch: pytest.MonkeyPatch, asked_topics: Path) -> None:
        """`asked_topics`: a directory, in which topics that groups have asked of become files."""
        self.offsets = 0
        self.topics = asked_topics
        self.topics.mkdir()
        self.skipped: set[str] = set()
        """The topics of which a group was sent behind messages that it had not got."""
        query, max_offset = OffsetRequestHandler.query, OffsetRequestHandler.max_offset

        def counted(handler: OffsetRequestHandler, asked: Command, by: Connection) -> object:
            self.offsets += 1
            (self.topics / asked.ext["topic"]).touch()
            return query(handler, asked, by)

        async def late(handler: OffsetRequestHandler, asked: Command, by: Connection) -> Reply:
            topic, queue_id = asked.ext["topic"], int(asked.ext["queueId"])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    while not handler._store.max_offset(topic, queue_id):
                        await asyncio.sleep(POLL_S)
                    self.skipped.add(topic)
            return max_offset(handler, asked, by)

        patch.setattr(OffsetRequestHandler, "query", counted)
        patch.setattr(OffsetRequestHandler, "max_offset", late)


def answer_as_before(patch: pytest.MonkeyPatch) -> None:
    """Let a queue without a message have no offset for a new group, as on Apache's broker."""
    start = OffsetRequestHandler._start_of_new_group

    def as_before(
        handler: OffsetRequestHandler, topic: str, queue_id: int, context: ReadContext
    ) -> int | None:
        if context.max_offset(topic, queue_id) == 0:
            return None
        return start(handler, topic, queue_id, context)

    patch.setattr(OffsetRequestHandler, "_start_of_new_group", as_before)


@contextlib.contextmanager
def running(store: Path) -> Iterator[str]:
    """A cluster in a thread of its own; gives its name server's address."""
    cluster, loop = InProcessCluster(store), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(cluster.start(), loop).result(30)
        yield cluster.namesrv
        asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def missing(
    java: JavaHost, namesrv: str, prefix: str, wait_s: int, questions: Questions
) -> set[str]:
    """The topics of which groups miss messages: fifty start amid the first sends to one each."""
    with Admin(namesrv=namesrv) as admin:
        for number in range(STARTS):
            admin.create_topic(f"{prefix}{number}", QUEUES)
    arguments = (namesrv, prefix, STARTS, wait_s, questions.topics)
    said = java.run("NewGroups", *arguments, timeout_s=400)
    assert "END" in said, said
    assert not [line for line in said if line.startswith("NOT ASKED")], said
    return {line.split()[1] for line in said if line.startswith("MISSING")}


def test_no_java_group_misses_messages_that_arrive_while_it_starts(
    java: JavaHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(monkeypatch, tmp_path / "asked")
    with running(tmp_path / "store") as namesrv:
        missed = missing(java, namesrv, "NewGroups", 40, questions)  # two rounds of rebalance
    assert not missed
    record_run("new-groups", replay=REPLAY, starts=STARTS, questions=questions.offsets)


def test_java_groups_do_miss_messages_where_an_empty_queue_has_no_offset(
    java: JavaHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as_before(monkeypatch)
    questions = Questions(monkeypatch, tmp_path / "asked")
    with running(tmp_path / "store") as namesrv:
        missed = missing(java, namesrv, "OldAnswers", 10, questions)
    assert questions.skipped, "no group was given the end of a queue amid the sends"
    assert questions.skipped <= missed
    record_run(
        "new-groups-by-the-old-answer",
        replay=REPLAY,
        starts=STARTS,
        groups_that_missed_some=len(questions.skipped),
    )
