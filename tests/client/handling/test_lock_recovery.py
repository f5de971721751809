"""Locks that ran out: taken again only where nobody else has gone on meanwhile."""

import asyncio
import logging

import pytest

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.queue_lease import FOR_EVER, REFUSED, QueueLease
from cometmq.client.handling import lock_recovery
from cometmq.client.handling.lock_recovery import LockRecovery
from cometmq.errors import RemotingTimeout
from cometmq.model.queue import MessageQueue

QUEUE = MessageQueue("T1", "b0", 3)


class Locks:
    """A broker's answers to requests for the lock, one after the other; None: no answer."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def lock(self, queues):
        answer = self.answers.pop(0)
        return {} if answer is None else dict.fromkeys(queues, answer)


class Offsets:
    """The committed offset as the broker has it; an error is raised."""

    def __init__(self, committed):
        self._committed = committed

    async def committed(self, queue):
        assert queue == QUEUE
        if isinstance(self._committed, Exception):
            raise self._committed
        return self._committed


def recover(locks, committed, *, is_dropped=False):
    """Try once; whether the queue goes on, the queue, and what was restarted."""
    restarted = []

    async def scenario():
        assigned = AssignedQueue(QUEUE, 10)
        if is_dropped:
            assigned.drop()
        recovery = LockRecovery(locks, Offsets(committed), restarted.append)
        async with asyncio.timeout(5):
            return await recovery.recover(assigned), assigned

    goes_on, assigned = asyncio.run(scenario())
    return goes_on, assigned, restarted


@pytest.mark.parametrize("committed", [None, 0, 9, 10])
def test_a_queue_goes_on_where_nobody_has_committed_more(committed):
    goes_on, assigned, restarted = recover(Locks(FOR_EVER), committed)
    assert goes_on
    assert assigned.holds_lock(1.0)
    assert not assigned.has_lost_lock
    assert restarted == []


def test_a_queue_that_another_member_has_gone_on_with_is_restarted():
    goes_on, assigned, restarted = recover(Locks(FOR_EVER), 11)
    assert not goes_on
    assert assigned.has_lost_lock
    assert restarted == [assigned]


@pytest.mark.parametrize(
    ("answer", "committed"),
    [(REFUSED, 10), (None, 10), (FOR_EVER, RemotingTimeout("no answer"))],
    ids=["refused", "no answer", "no offset"],
)
def test_without_a_lock_or_an_offset_the_queue_waits(answer, committed):
    goes_on, assigned, restarted = recover(Locks(answer), committed)
    assert not goes_on
    assert assigned.has_lost_lock
    assert not assigned.holds_lock(0.0)
    assert restarted == []


@pytest.mark.parametrize(("answer", "pause_s"), [(REFUSED, 0.1), (None, 0.5)])
def test_a_refused_lock_is_asked_for_again_sooner_than_one_without_answer(
    monkeypatch, answer, pause_s
):
    paused = []

    async def note(_, seconds):
        paused.append(seconds)

    monkeypatch.setattr(AssignedQueue, "sleep_unless_dropped", note)
    recover(Locks(answer), 10)
    assert paused == [pause_s]


def test_a_dropped_queue_is_locked_again_to_commit_but_never_restarted():
    assert recover(Locks(FOR_EVER), 10, is_dropped=True)[0]
    goes_on, _, restarted = recover(Locks(FOR_EVER), 11, is_dropped=True)
    assert not goes_on
    assert restarted == []


def still_ours(locks, committed, head=5, *, is_dropped=False):
    """Whether results count from `head` on, and the queue."""

    async def scenario():
        assigned = AssignedQueue(QUEUE, head)
        locks.assigned = assigned
        if is_dropped:
            assigned.drop()
        recovery = LockRecovery(locks, Offsets(committed), lambda assigned: None)
        async with asyncio.timeout(5):
            return await recovery.is_still_ours(assigned, head), assigned

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "committed", "head", "is_ours"),
    [
        ([FOR_EVER], 5, 5, True),
        ([FOR_EVER], 6, 5, False),
        ([FOR_EVER], None, 0, True),
        ([None, REFUSED, FOR_EVER], 5, 5, True),
    ],
    ids=["nobody else", "another member", "nobody ever", "late"],
)
def test_results_count_only_where_nobody_else_had_the_messages(
    answers, committed, head, is_ours, monkeypatch
):
    monkeypatch.setattr(lock_recovery, "_pause_s", lambda _: 0.001)
    locks = Locks(*answers)
    found, assigned = still_ours(locks, committed, head)
    assert found is is_ours
    assert assigned.has_lost_lock is not is_ours
    assert locks.answers == [], "every answer before the lock was awaited"
    assert assigned.lock is FOR_EVER or not is_ours


@pytest.mark.parametrize(
    ("answers", "is_ours"), [([None], True), ([REFUSED], False), ([REFUSED, None], False)]
)
def test_results_of_a_queue_that_is_left_count_unless_its_lock_was_refused(
    answers, is_ours, monkeypatch
):
    """The queue is dropped when the last answer comes; a refusal before it is remembered."""
    monkeypatch.setattr(lock_recovery, "_pause_s", lambda _: 0.001)

    class DroppedAtLast(Locks):
        async def lock(self, queues):
            if len(self.answers) == 1:
                self.assigned.drop()
            return await super().lock(queues)

    assert still_ours(DroppedAtLast(*answers), 5)[0] is is_ours


def test_a_lock_that_ran_out_while_the_offset_was_asked_for_is_none():
    goes_on, assigned, restarted = recover(Locks(QueueLease(0.001)), 10)
    assert not goes_on
    assert assigned.has_lost_lock
    assert restarted == []


def test_the_log_says_why_a_queue_restarts_or_waits(caplog):
    caplog.set_level(logging.INFO, "cometmq")
    recover(Locks(FOR_EVER), 11)
    recover(Locks(FOR_EVER), RemotingTimeout("no answer"))
    assert caplog.messages == [
        f"another member has consumed {QUEUE} meanwhile: it restarts here at offset 11",
        f"the committed offset of {QUEUE} is not known: no answer",
    ]


def test_a_group_that_is_broadcast_to_needs_no_locks():
    goes_on, assigned, _ = recover(None, 10)
    assert goes_on
    assert assigned.lock is FOR_EVER
