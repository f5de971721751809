"""Queue locks: at most one holder, re-entrant, expiring; against a model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.model.queue import MessageQueue

ALL = [MessageQueue("T", "b0", number) for number in range(3)]


LIVE_MS = 60
CLIENTS = st.sampled_from(["a", "b", "c"])
SOME = st.sets(st.sampled_from(ALL), min_size=1)


class LocksAgreeWithAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.locks = QueueLocks(lambda: self.now_ms, LIVE_MS)
        self.held: dict[MessageQueue, tuple[str, int]] = {}

    def holder(self, queue: MessageQueue) -> str | None:
        client, until_ms = self.held.get(queue, ("", -1))
        return client if self.now_ms <= until_ms else None

    @rule(client=CLIENTS, queues=SOME)
    def lock(self, client: str, queues: set[MessageQueue]) -> None:
        granted = {queue for queue in queues if self.holder(queue) in (None, client)}
        assert set(self.locks.lock("G", client, queues)) == granted
        self.held.update(dict.fromkeys(granted, (client, self.now_ms + LIVE_MS)))

    @rule(client=CLIENTS, queues=SOME)
    def unlock(self, client: str, queues: set[MessageQueue]) -> None:
        self.locks.unlock("G", client, queues)
        for queue in queues:
            if self.held.get(queue, ("", 0))[0] == client:
                del self.held[queue]

    @rule(ms=st.integers(0, LIVE_MS + 2))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def holders_are_what_the_model_says(self) -> None:
        for queue in ALL:
            assert self.locks.holder("G", queue) == self.holder(queue)
        assert self.locks.is_any_held("G") == any(self.holder(queue) for queue in ALL)
        assert not self.locks.is_any_held("H")


LocksAgreeWithAModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestLocksAgreeWithAModel = LocksAgreeWithAModel.TestCase
