"""What the log says while queues wait for locks of other members."""

import logging

import pytest

from cometmq.client.consumer.lock_waits import FORGET_S, LOG_AFTER_S, LOG_EVERY_MAX_S, LockWaits
from cometmq.model.queue import MessageQueue
from cometmq.model.queue_lock import LockHolder

QUEUES = [MessageQueue("T1", "b0", number) for number in range(12)]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "cometmq")
    return lambda: [record.getMessage() for record in caplog.records]


def refuse_for(waits, seconds, queues=QUEUES[:2], holder=None, since=0.0):
    """Have locks refused once a second."""
    for now in range(int(since), int(since + seconds) + 1):
        for queue in queues:
            waits.refuse(queue, holder, float(now))
        waits.report(float(now))


def test_the_log_says_whose_a_lock_is_and_how_long_it_may_take(said):
    waits = LockWaits("G")
    refuse_for(waits, LOG_AFTER_S, holder=LockHolder("10.0.0.9@77", 41_000, 56_000))
    assert said() == [
        "the group G has waited 2 s for the lock of T1@b0/0, T1@b0/1: the client 10.0.0.9@77 has "
        "held it for 41 s and keeps it until it releases it, or for 56 s without renewing it"
    ]
    waits.grant(QUEUES[0], 58.0)
    assert "after 58 s" in said()[-1]


def test_of_a_broker_that_does_not_tell_the_holder_the_log_says_how_long_it_has_been(said):
    refuse_for(LockWaits("G"), 2)
    [line] = said()
    assert "has waited 2 s" in line
    assert "another member has it, the broker does not say which" in line


def test_a_short_wait_is_not_logged(said):
    waits = LockWaits("G")
    refuse_for(waits, 1, QUEUES[:1])
    waits.grant(QUEUES[0], 1.5)
    refuse_for(waits, 1, QUEUES[:1], since=10)
    assert said() == []


def test_a_long_wait_is_logged_less_and_less_often_in_one_line_for_all_queues(said):
    refuse_for(LockWaits("G"), 3600, QUEUES)
    assert len(said()) < 3600 / LOG_EVERY_MAX_S + 10
    assert "and 4 more" in said()[0]


def test_what_is_not_wanted_any_more_is_forgotten(said):
    waits = LockWaits("G")
    refuse_for(waits, 5, QUEUES[:1])
    refuse_for(waits, 5, QUEUES[1:2], since=6 + FORGET_S)
    assert "T1@b0/0" not in said()[-1]


def test_a_lock_that_nobody_asks_for_any_more_is_not_reported(said):
    waits = LockWaits("G")
    refuse_for(waits, 3, QUEUES[:1])
    count = len(said())
    for now in range(3, 60):
        waits.report(3 + FORGET_S + now)
    assert len(said()) == count
