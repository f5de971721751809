"""Order proved: members of a group work by key through crashes, moves, lost commits and resets.

A world of one queue, its broker and two members with disks of their own, all pure. The promise is
checked at every call of a handler: all before it of its key (of the queue, for a barrier) have been
finished, and at the end every message is done, or dead as its policy says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cometmq.rules.failures.circuit_breaker import BreakerLimits, CircuitBreaker
from cometmq.rules.failures.failure_policy import BLOCK, FailureAction, OnFailure
from cometmq.rules.queues.by_key_process_queue import ByKeyProcessQueue
from cometmq.rules.queues.key_lanes import BARRIER
from cometmq.rules.queues.offset_journal import OffsetJournal, decode_journal
from cometmq.rules.queues.process_queue import ProcessQueue
from rules.key_order_model import FOR_EVER, Pulled, handled, never_overtaken

SPAN, COUNT, PULL, AFTER = 12, 10, 4, 3
CALM = BreakerLimits(keys=20)


@dataclass
class Sent:
    """A message as the world knows it."""

    queue_offset: int
    key: object
    fails: int  # so many calls fail before one goes well
    policy: object
    is_finished: bool = False
    is_dead: bool = False
    is_skipped: bool = False  # by an operator


@dataclass
class World:
    log: list[Sent] = field(default_factory=list)
    committed: int = 0
    holder: Member | None = None
    now: float = 0.0

    def call(self, batch: list[Pulled]) -> bool:
        """Handle a batch; whether it went well. Here the promise is checked."""
        never_overtaken(batch, self.log)
        return handled(batch)


class Member:
    """What the client does around a `ByKeyProcessQueue`, without threads and sockets."""

    def __init__(self, world: World) -> None:
        self.world, self.disk = world, b""
        self.written: set[int] = set()

    def take(self) -> None:
        """Begin at the committed offset, with what the disk knows."""
        world = self.world
        world.holder, start = self, world.committed
        saved = decode_journal(self.disk)
        if saved is None or start not in saved.own_commits:
            self.written = set()
        self.journal = OffsetJournal("us", start, self.disk, is_reset=False)
        self.disk = self.journal.opening_records()
        self.key_queue = ByKeyProcessQueue(ProcessQueue(start), self.journal, CircuitBreaker(CALM))
        self.broker_offset, self.in_flight = start, []

    def pull(self, span=SPAN, count=COUNT, number=PULL) -> None:
        """Fetch the next messages, unless there is enough."""
        window = self.key_queue.window
        at = window.next_offset
        if at - self.broker_offset > span or window.count > count:
            return
        fresh = [Pulled(sent.queue_offset, sent) for sent in self.world.log[at : at + number]]
        window.put(fresh, at + len(fresh))
        window.take(len(fresh))
        self.key_queue.add_messages((one.sent.key, one) for one in fresh)

    def begin(self, most: int) -> None:
        taken = self.key_queue.take_batch(most, self.world.now)
        if taken is not None:
            self.in_flight.append((taken, most))

    def end(self, at: int, batch: int) -> None:
        """Run a taken: batches one after the other, up to a failure."""
        taken, most = self.in_flight.pop(at % len(self.in_flight))
        left = most
        while taken.messages and left > 0:
            head = taken.messages[0]
            size = 1 if head.queue_offset <= taken.lane.one_by_one_until else batch
            own = taken.messages[:size]
            left -= size
            repeated = self.written.intersection(one.queue_offset for one in own)
            assert not repeated, "what the disk knows as finished was repeated"
            if self.world.call(own):
                self.key_queue.record_success(taken, len(own), self.world.now)
                continue
            policy = own[0].sent.policy
            decision, _ = self.key_queue.record_failure(
                taken, len(own), policy, 1000, self.world.now
            )
            if decision.action is FailureAction.DEAD_LETTER:
                assert len(own) == 1
                assert own[0].reconsume_times + 1 == AFTER, "dead before its attempts were used"
                own[0].sent.is_dead = own[0].sent.is_finished = True
                self.key_queue.finish(taken, 1)
                continue
            self.key_queue.release(taken, self.world.now + decision.pause_ms / 1000)
            return
        self.key_queue.release(taken)

    def write(self) -> None:
        fresh = set(self.key_queue._unwritten_finished)
        self.disk += self.key_queue.take_journal_records()
        self.written |= fresh

    def tell(self, *, arrives: bool, is_answered: bool) -> None:
        self.write()
        offset = self.key_queue.window.commit_offset
        self.disk += self.journal.record_commit_begin(offset)
        if arrives:
            self.world.committed = offset
            if is_answered:
                self.disk += self.journal.record_commit_done(offset)
                self.broker_offset = offset


class Order(RuleBasedStateMachine):
    """Random lives of two members; in the end the one who is left finishes everything."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.members = [Member(self.world), Member(self.world)]
        self.members[0].take()

    @property
    def holder(self):
        return self.world.holder

    def has_worked(self):
        """Whether enough was done in this life that a mishap may hurt."""
        return self.holder.key_queue.window.next_offset > self.holder.journal.own_commits[0] + 3

    @rule(
        key=st.sampled_from(["a", "b", "c", "d", "e", BARRIER]),
        fails=st.sampled_from([0, 0, 0, 1, 2, 9, FOR_EVER]),
        count=st.integers(1, 8),
    )
    def send(self, key, fails, count):
        for _ in range(count):
            policy = BLOCK if fails < FOR_EVER else OnFailure.dead_letter(after=AFTER)
            self.world.log.append(Sent(len(self.world.log), key, fails, policy))
            fails, key = 0, "abcde"[(len(self.world.log) * 7) % 5]

    @precondition(lambda self: self.holder)
    @rule()
    def pull(self):
        self.holder.pull()

    @precondition(lambda self: self.holder)
    @rule(most=st.integers(1, 4))
    def begin(self, most):
        self.holder.begin(most)

    @precondition(lambda self: self.holder and self.holder.in_flight)
    @rule(at=st.integers(0, 9), batch=st.integers(1, 3))
    def end(self, at, batch):
        self.holder.end(at, batch)

    @precondition(lambda self: self.holder)
    @rule(rounds=st.integers(1, 4), most=st.integers(1, 4), writes=st.booleans())
    def work(self, rounds, most, writes):
        """A stretch without mishaps, so that there is something to lose."""
        for _ in range(rounds):
            self.holder.pull()
            for _ in range(3):
                self.holder.begin(most)
            while self.holder.in_flight:
                self.holder.end(0, 2)
            self.world.now += 1
            if writes:
                self.holder.write()

    @rule(passes=st.integers(1, 3))
    def wait(self, passes):
        self.world.now += passes

    @precondition(lambda self: self.holder)
    @rule()
    def write(self):
        self.holder.write()

    @precondition(lambda self: self.holder)
    @rule(arrives=st.booleans(), is_answered=st.booleans())
    def tell(self, arrives, is_answered):
        self.holder.tell(arrives=arrives, is_answered=is_answered)

    @precondition(lambda self: self.has_worked())
    @rule(back=st.integers(0, 1), cut=st.none() | st.integers(0, 400))
    def crash_and_begin_again(self, back, cut):
        """The same one comes back, or the other; with `cut` the power failed too."""
        dead = self.holder
        if cut is not None:
            dead.disk, dead.written = dead.disk[:cut], set()
        before = sum(sent.is_finished for sent in self.world.log[self.world.committed :])
        assert before <= SPAN + PULL, "more than the span would be repeated after a move"
        self.members[(self.members.index(dead) + back) % 2].take()

    @precondition(lambda self: self.has_worked())
    @rule()
    def hand_over(self):
        """A clean move: what is in flight ends, all is written and committed, the other begins."""
        leaver = self.holder
        while leaver.in_flight:
            leaver.end(0, 1)
        leaver.tell(arrives=True, is_answered=True)
        self.members[1 - self.members.index(leaver)].take()

    @precondition(lambda self: self.has_worked())
    @rule(data=st.data())
    def reset(self, data):
        """While nobody runs an operator sets another offset than one that the disks know."""
        world = self.world
        offset = data.draw(st.integers(0, len(world.log)))
        saved = decode_journal(self.holder.disk)
        if saved and offset in saved.own_commits:
            return
        for sent in world.log[:offset]:
            sent.is_skipped |= not sent.is_finished
            sent.is_finished = True
        for sent in world.log[offset:]:
            sent.is_finished = sent.is_dead = sent.is_skipped = False
        world.committed = offset
        self.members[1 - self.members.index(self.holder)].disk = b""  # see the decision's page
        self.holder.take()
        assert not self.holder.written

    @invariant()
    def what_is_held_is_bounded(self):
        if self.holder:
            window = self.holder.key_queue.window
            assert window.count <= COUNT + PULL
            assert window.next_offset - self.holder.broker_offset <= SPAN + PULL

    def teardown(self):
        if self.holder is None:
            return
        member, world = self.holder, self.world
        for _ in range(40 * len(world.log) + 40):
            member.pull()
            for _ in range(4):
                member.begin(4)
            while member.in_flight:
                member.end(0, 2)
            member.tell(arrives=True, is_answered=True)
            world.now += 31
            if world.committed == len(world.log):
                break
        assert world.committed == len(world.log), "something is left"
        for sent in world.log:
            assert sent.is_finished
            assert sent.is_dead == (sent.fails == FOR_EVER and not sent.is_skipped)
            assert not sent.fails or sent.is_dead or sent.is_skipped


TestOrder = Order.TestCase
TestOrder.settings = settings(max_examples=100, stateful_step_count=50)


def test_a_key_stuck_for_an_hour_holds_back_its_queue_at_the_span_and_no_further():
    world, hour = World(), 3600
    for offset in range(2_600):
        key = "stuck" if offset == 100 else f"key-{offset % 10}"
        world.log.append(Sent(offset, key, FOR_EVER if offset == 100 else 0, BLOCK))
    member = Member(world)
    member.take()
    span, calls, largest = 2_000, 0, 0
    while world.now < hour:
        member.pull(span, 1000, 32)
        while (taken := member.key_queue.take_batch(32, world.now)) is not None:
            calls += taken.messages[0].queue_offset == 100
            member.in_flight.append((taken, 32))
            member.end(0, 1)
        member.tell(arrives=True, is_answered=True)
        largest = max(largest, member.key_queue.window.count)
        world.now += 1
    reached = member.key_queue.window.next_offset
    assert calls > hour - 10, "an attempt a second, for the whole hour"
    assert world.committed == 100
    assert 100 + span < reached <= 100 + span + 32
    assert sum(sent.is_finished for sent in world.log) == reached - 1, "all others are done"
    assert largest <= 33, "what is done takes no room"
    assert len(member.journal.opening_records()) < 100
    world.log[100].fails = 0
    while world.committed < len(world.log):
        member.pull(span, 1000, 32)
        while (taken := member.key_queue.take_batch(32, world.now)) is not None:
            member.in_flight.append((taken, 32))
            member.end(0, 1)
        member.tell(arrives=True, is_answered=True)
        world.now += 1
    assert all(sent.is_finished and not sent.is_dead for sent in world.log)


def test_a_stuck_key_with_many_messages_of_its_own_holds_back_its_queue_at_the_count():
    world = World()
    for offset in range(3_000):
        key = "stuck" if offset % 2 else "other"
        world.log.append(Sent(offset, key, FOR_EVER if offset == 1 else 0, BLOCK))
    member = Member(world)
    member.take()
    while world.now < 3600:
        member.pull(60_000, 500, 32)
        while (taken := member.key_queue.take_batch(32, world.now)) is not None:
            member.in_flight.append((taken, 32))
            member.end(0, 1)
        world.now += 10
    window = member.key_queue.window
    assert 500 < window.count <= 532
    assert sum(sent.is_finished for sent in world.log) == window.next_offset // 2


def test_a_message_whose_sender_claims_a_negative_count_of_failures_is_counted_from_none():
    world = World(log=[Sent(0, "a", FOR_EVER, OnFailure.dead_letter(after=AFTER))])
    member = Member(world)
    member.take()
    message = Pulled(0, world.log[0], reconsume_times=-5)
    member.key_queue.window.put([message], 1)
    member.key_queue.window.take(1)
    member.key_queue.add_messages([("a", message)])
    taken = member.key_queue.take_batch(1, 0.0)
    for failures in range(1, AFTER):
        decision, _ = member.key_queue.record_failure(taken, 1, world.log[0].policy, 10, 0.0)
        assert decision.action is FailureAction.NONE
        assert decode_journal(member.disk + member.key_queue.take_journal_records()).failures == {
            0: (failures, 1)
        }
    decision, _ = member.key_queue.record_failure(taken, 1, world.log[0].policy, 10, 0.0)
    assert decision.action is FailureAction.DEAD_LETTER
