"""What the next commit holds."""

import pytest

from cometmq import MessageQueue
from cometmq.errors import DataLoss
from cometmq.model.admin_stats import TopicOffset
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.tables.archived_ranges import ArchivedQueues, ArchivedRanges
from cometmq.spark.tables.commit_planning import plan_commit, waiting

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def at(first: int, end: int, stored_ms: int = 100) -> TopicOffset:
    return TopicOffset(min_offset=first, max_offset=end, last_update_timestamp=stored_ms)


def archived(begin: int, end: int) -> ArchivedQueues:
    return ArchivedQueues({A: ArchivedRanges(((begin, end),), end - begin, 0)}, 50)


def plan(before: ArchivedQueues, target, rows: int = 1000, *, strict: bool = True):
    return plan_commit(before, target, rows, fail_on_data_loss=strict)


def test_a_first_commit_begins_where_the_broker_does() -> None:
    found = plan(ArchivedQueues(), {A: at(7, 20), B: at(0, 0)})
    assert found.ranges == (OffsetRange(A, 7, 20),)
    assert (found.started_ms, found.ended_ms, found.messages) == (0, 100, 13)


def test_a_commit_goes_on_at_the_end_and_a_new_queue_joins() -> None:
    target = {A: at(0, 20), B: at(3, 5, 200)}
    found = plan(archived(0, 20), target)
    assert found.ranges == (OffsetRange(B, 3, 5),)
    assert (found.started_ms, found.ended_ms) == (50, 200)
    assert not plan(archived(0, 20), {A: at(0, 20)}).ranges
    assert waiting(archived(0, 15), target) == 7


def test_commits_are_limited_and_shared_by_queues() -> None:
    found = plan(ArchivedQueues(), {A: at(0, 1000), B: at(0, 10)}, rows=100)
    assert found.ranges == (OffsetRange(A, 0, 90), OffsetRange(B, 0, 10))


def test_what_retention_deleted_is_an_error_or_a_hole() -> None:
    with pytest.raises(DataLoss, match=r"no longer holds the messages from 5 up to 8.*--skip-lost"):
        plan(archived(0, 5), {A: at(8, 9)})
    assert plan(archived(0, 5), {A: at(8, 9)}, strict=False).ranges == (OffsetRange(A, 8, 9),)


def test_a_queue_shorter_than_the_table_is_always_an_error() -> None:
    for strict in (True, False):
        with pytest.raises(DataLoss, match="ends at 3, but the table holds it up to 5"):
            plan(archived(0, 5), {A: at(0, 3)}, strict=strict)
