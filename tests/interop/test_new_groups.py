"""A group that starts amid the first sends to a topic gets all of them, in the Java client too.

The client asks for its offset of each queue (14) and, where it has none, for the queue's end (30).
What is stored between these two answers is before the end: it is lost to the group, unless the
first answer is the end already. Here the second answer comes late, as on a loaded machine, so that
the old kind of first answer does lose messages: the test could fail.
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
STARTS, QUEUES, LATE_S = 50, 16, 0.1
REPLAY = "pytest -m interop tests/interop/test_new_groups.py"


class Questions:
    """Counts what the clients asked, and answers the second question late."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.offsets = self.ends = 0
        query, max_offset = OffsetRequestHandler.query, OffsetRequestHandler.max_offset

        def counted(handler: OffsetRequestHandler, asked: Command, by: Connection) -> object:
            self.offsets += 1
            return query(handler, asked, by)

        async def late(handler: OffsetRequestHandler, asked: Command, by: Connection) -> Reply:
            self.ends += 1
            await asyncio.sleep(LATE_S)
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


def missing(java: JavaHost, namesrv: str, prefix: str, wait_s: int) -> list[str]:
    """What each of fifty groups misses that start amid the first sends to a topic of their own."""
    with Admin(namesrv=namesrv) as admin:
        for number in range(STARTS):
            admin.create_topic(f"{prefix}{number}", QUEUES)
    said = java.run("NewGroups", namesrv, prefix, STARTS, wait_s, timeout_s=200)
    assert "END" in said, said
    return [line for line in said if line.startswith("MISSING")]


def test_no_java_group_misses_messages_that_arrive_while_it_starts(
    java: JavaHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(monkeypatch)
    with running(tmp_path) as namesrv:
        assert missing(java, namesrv, "NewGroups", 40) == []  # two rounds of rebalance
    record_run("new-groups", replay=REPLAY, starts=STARTS, questions=questions.offsets)


def test_java_groups_do_miss_messages_where_an_empty_queue_has_no_offset(
    java: JavaHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as_before(monkeypatch)
    questions = Questions(monkeypatch)
    with running(tmp_path) as namesrv:
        lost = missing(java, namesrv, "OldAnswers", 10)
    assert questions.ends, "nobody asked for the end of a queue"
    assert lost, "the other test proves nothing"
    record_run(
        "new-groups-by-the-old-answer",
        replay=REPLAY,
        starts=STARTS,
        groups_that_missed_some=len(lost),
    )
