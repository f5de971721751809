"""Queue locks: at most one holder, re-entrant, ending by time or as agreed; against a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cometmq.broker.groups import queue_locks
from cometmq.broker.groups.queue_locks import CONNECTIONS_MAX, QueueLock, QueueLocks
from cometmq.model.queue import MessageQueue
from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder

ALL = [MessageQueue("T", "b0", number) for number in range(3)]


LIVE_MS = 60
CONNECTIONS = st.sampled_from(["a1", "a2", "b1", "b2", "c1"])
"""Each named by its client and a number."""
SOME = st.sets(st.sampled_from(ALL), min_size=1)


class LocksAgreeWithAModel(RuleBasedStateMachine):
    """The model: the holder, until when, and what each connection has agreed."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.locks = QueueLocks(lambda: self.now_ms, LIVE_MS)
        self.held: dict[MessageQueue, tuple[str, int, dict[str, EarlyUnlockCause]]] = {}

    def holder(self, queue: MessageQueue) -> str | None:
        client, until_ms, ends = self.held.get(queue, ("", -1, {}))
        return client if self.now_ms <= until_ms and ends else None

    @rule(connection=CONNECTIONS, queues=SOME, end=st.sampled_from(EarlyUnlockCause))
    def lock(self, connection: str, queues: set[MessageQueue], end: EarlyUnlockCause) -> None:
        client = connection[0]
        granted = {queue for queue in queues if self.holder(queue) in (None, client)}
        assert set(self.locks.lock("G", client, queues, connection, end)) == granted
        for queue in granted:
            ends = self.held[queue][2] if self.holder(queue) else {}
            self.held[queue] = (client, self.now_ms + LIVE_MS, {**ends, connection: end})

    @rule(connection=CONNECTIONS, queues=SOME)
    def unlock(self, connection: str, queues: set[MessageQueue]) -> None:
        self.locks.unlock("G", connection[0], queues, connection)
        for queue in queues:
            if self.holder(queue) == connection[0]:
                self.keep(
                    queue, lambda at, end: end is EarlyUnlockCause.CONNECTION and at != connection
                )

    @rule(connection=CONNECTIONS)
    def leave(self, connection: str) -> None:
        self.locks.leave("G", connection)
        for queue, (_, _, ends) in self.held.items():
            if connection in ends:
                self.keep(
                    queue,
                    lambda at, end: (
                        end is EarlyUnlockCause.TIME
                        or (end is EarlyUnlockCause.CONNECTION and at != connection)
                    ),
                )

    @rule(connection=CONNECTIONS, by_client=st.booleans())
    def disconnect(self, connection: str, by_client: bool) -> None:
        self.locks.end_connection(connection, by_client=by_client)
        for _, _, ends in self.held.values():
            end = ends.pop(connection, None)
            if end is EarlyUnlockCause.CONNECTION and not by_client:
                ends["gone"] = EarlyUnlockCause.TIME
            elif end is not None and end is not EarlyUnlockCause.CONNECTION:
                ends["gone"] = (
                    EarlyUnlockCause.TIME
                    if EarlyUnlockCause.TIME in (end, ends.get("gone"))
                    else end
                )

    def keep(self, queue: MessageQueue, is_kept) -> None:
        ends = self.held[queue][2]
        for at in [at for at, end in ends.items() if not is_kept(at, end)]:
            del ends[at]

    @rule(ms=st.integers(0, LIVE_MS + 2))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def holders_are_what_the_model_says(self) -> None:
        for queue in ALL:
            found = self.locks.holder("G", queue)
            assert (found and found.client_id) == self.holder(queue)
            if found:
                assert found.left_ms == self.held[queue][1] - self.now_ms
        assert self.locks.is_any_held("G") == any(self.holder(queue) for queue in ALL)
        assert not self.locks.is_any_held("H")


LocksAgreeWithAModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestLocksAgreeWithAModel = LocksAgreeWithAModel.TestCase


def test_a_lock_lives_to_the_last_millisecond_and_its_holder_is_named_with_its_times() -> None:
    now_ms = 1_000
    locks = QueueLocks(lambda: now_ms, LIVE_MS)
    locks.lock("G", "a", ALL[:1])
    now_ms += 7
    assert locks.holder("G", ALL[0]) == LockHolder("a", 7, LIVE_MS - 7)
    locks.lock("G", "a", ALL[:1])
    now_ms += LIVE_MS
    assert locks.holder("G", ALL[0]) == LockHolder("a", 7 + LIVE_MS, 0)
    assert locks.lock("G", "b", ALL[:1]) == []
    now_ms += 1
    assert locks.holder("G", ALL[0]) is None
    assert locks.lock("G", "b", ALL[:1]) == ALL[:1]


@pytest.mark.parametrize(
    ("other", "is_held"),
    [
        (EarlyUnlockCause.LEAVING, False),
        (EarlyUnlockCause.CONNECTION, True),
        (EarlyUnlockCause.TIME, True),
    ],
)
def test_who_leaves_on_one_connection_keeps_what_another_one_of_it_holds_longer(
    other: EarlyUnlockCause, is_held: bool
) -> None:
    locks = QueueLocks(lambda: 1_000, LIVE_MS)
    locks.lock("G", "a", ALL[:1], "a1", EarlyUnlockCause.CONNECTION)
    locks.lock("G", "a", ALL[:1], "a2", other)
    locks.leave("G", "a1")
    assert (locks.holder("G", ALL[0]) is not None) == is_held


def test_what_a_broken_connection_leaves_is_released_as_it_was_asked_for() -> None:
    """Broken not by its client: then what was to end with it lives for its time, or until given."""
    locks = QueueLocks(lambda: 1_000, LIVE_MS)

    def asked_and_broken(end: EarlyUnlockCause) -> None:
        locks.lock("G", "a", ALL[:1], "a1", end)
        locks.end_connection("a1", by_client=False)
        locks.lock("G", "a", ALL[:1], "a2", EarlyUnlockCause.LEAVING)

    asked_and_broken(EarlyUnlockCause.CONNECTION)
    locks.leave("G", "a2")
    assert locks.holder("G", ALL[0]) is not None, "a client may still work on the old connection"
    locks.unlock("G", "a", ALL[:1], "a2")
    assert locks.holder("G", ALL[0]) is None
    asked_and_broken(EarlyUnlockCause.LEAVING)
    locks.leave("G", "a2")
    assert locks.holder("G", ALL[0]) is None


def test_a_lock_asked_for_over_too_many_connections_ends_by_its_time() -> None:
    now_ms = 1_000
    locks = QueueLocks(lambda: now_ms, LIVE_MS)
    connections = range(CONNECTIONS_MAX + 5)
    for connection in connections:
        locks.lock("G", "a", ALL[:1], connection, EarlyUnlockCause.CONNECTION)
    assert len(locks._groups["G"][ALL[0]].ends) == CONNECTIONS_MAX + 1
    for connection in connections:
        locks.end_connection(connection, by_client=True)
    assert locks.holder("G", ALL[0]) is not None
    now_ms += LIVE_MS + 1
    assert locks.holder("G", ALL[0]) is None


def test_nothing_is_left_of_locks_that_were_returned() -> None:
    locks = QueueLocks(lambda: 1_000, LIVE_MS)
    for connection in range(3):
        locks.lock("G", "a", ALL, connection, EarlyUnlockCause.CONNECTION)
        locks.unlock("G", "a", ALL, connection)
    assert not locks._groups
    assert not locks._asked


def test_locks_of_all_groups_are_bounded_and_expired_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_TOTAL_MAX", 4)
    now_ms = 0
    locks = QueueLocks(lambda: now_ms, LIVE_MS)
    assert locks.lock("A", "a", ALL) == ALL
    assert locks.lock("B", "b", ALL) == ALL[:1]
    assert locks.lock("A", "a", ALL) == ALL, "who has them keeps them"
    assert locks.lock("B", "b", [ALL[1], ALL[0]]) == ALL[:1], "also behind one that is refused"
    now_ms = queue_locks.LOOK_MS
    assert locks.lock("B", "b", ALL) == ALL, "the others have expired"
    assert locks.lock("C", "c", ALL) == ALL[:1]
    locks.unlock("B", "b", ALL)
    assert locks.lock("C", "c", ALL) == ALL


def test_groups_and_the_locks_of_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 2)
    monkeypatch.setattr(queue_locks, "GROUPS_MAX", 1)
    locks = QueueLocks(lambda: 1_000, LIVE_MS)
    assert locks.lock("A", "a", ALL[:1]) == ALL[:1]
    assert locks.lock("B", "b", ALL) == []
    assert locks.lock("A", "a", ALL) == ALL[:2]


def test_a_lock_asked_for_without_a_connection_goes_as_it_was_asked_for() -> None:
    locks = QueueLocks(lambda: 1_000, LIVE_MS)
    for end, is_held in ((EarlyUnlockCause.LEAVING, False), (EarlyUnlockCause.TIME, True)):
        locks.lock("G", "a", ALL[:1], None, end)
        locks.lock("G", "a", ALL[:1], "a1", EarlyUnlockCause.LEAVING)
        locks.leave("G", "a1")
        assert (locks.holder("G", ALL[0]) is not None) == is_held


def test_a_lock_asked_for_over_too_many_connections_is_free_when_it_is_returned() -> None:
    locks = QueueLocks(lambda: 1_000, LIVE_MS)
    for connection in range(CONNECTIONS_MAX + 1):
        locks.lock("G", "a", ALL[:1], connection, EarlyUnlockCause.CONNECTION)
    for connection in range(CONNECTIONS_MAX):
        locks.end_connection(connection, by_client=True)
    locks.unlock("G", "a", ALL[:1], CONNECTIONS_MAX)
    assert locks.holder("G", ALL[0]) is None


def test_a_full_table_is_not_looked_through_with_each_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_TOTAL_MAX", 3)
    looks = 0

    class Counted(QueueLocks):
        def _is_live(self, lock: QueueLock, now_ms: int) -> bool:
            nonlocal looks
            looks += 1
            return super()._is_live(lock, now_ms)

    locks = Counted(lambda: 1_000_000, LIVE_MS)
    locks.lock("A", "a", ALL)
    for _ in range(100):
        assert locks.lock("B", "b", ALL) == []
    assert looks <= len(ALL)
