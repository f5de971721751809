"""Order proved with policies and a breaker: two queues of a topic, outages, moves and crashes.

Beside tests/rules/queues/test_by_key_process_queue.py, where nothing is ever taken for an outage.
Here members hold several queues under one breaker, every message has a policy of its own, sinks
fail, and now and then everything fails. Promised, and checked at every step: a call of a handler
comes after the end of all before it of its key; a message meets the end of its policy with exactly
the failure that the policy says, failures in an outage not counted, as long as it may last; in an
outage one call at a time tries; an offset moves past nothing that is not finished, and past no row
that was not written; and where nothing but bad messages are left, they meet their ends too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count, pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cometmq.rules.failures.circuit_breaker import BreakerLimits, CircuitBreaker
from cometmq.rules.failures.failure_policy import BLOCK, FailureAction, FailurePolicy, OnFailure
from cometmq.rules.queues.by_key_process_queue import ByKeyProcessQueue, LaneBatch
from cometmq.rules.queues.key_lanes import BARRIER
from cometmq.rules.queues.offset_journal import OffsetJournal, decode_journal
from cometmq.rules.queues.process_queue import ProcessQueue
from rules.key_order_model import FOR_EVER, Pulled, handled, never_overtaken

QUEUES, SPAN, COUNT, PULL = (0, 1), 12, 10, 4
LIMITS = BreakerLimits(
    keys=3, results=6, memory_s=20.0, pause_s=1.0, pause_most_s=8.0, outage_most_s=90.0
)
AWAY = OnFailure.retry(2)  # what is chosen for the error of an outage: a dead letter at the third
POLICIES = {
    "block": BLOCK,
    "dead letter": OnFailure.dead_letter(after=2),
    "skip": OnFailure.skip(after=3),
    "stop": OnFailure.stop(),
    "store": OnFailure.store(print, after=2),
}


@dataclass
class Sent:
    """A message as the world knows it."""

    queue: int
    queue_offset: int
    key: object
    fails: int  # so many calls fail before one goes well
    policy: FailurePolicy
    charged: int = 0  # failures that its member knows of, without those of outages
    noted: int = 0  # those after which it was to come again: what its member keeps
    is_finished: bool = False
    end: FailureAction | None = None
    end_charged: int = 0  # as many as it had when it met its end
    was_row: bool = False


@dataclass
class World:
    logs: tuple[list[Sent], list[Sent]] = field(default_factory=lambda: ([], []))
    committed: list[int] = field(default_factory=lambda: [0, 0])
    holders: list[Member] = field(default_factory=list)
    now: float = 0.0
    is_down: bool = False
    sink_works: bool = True

    def call(self, batch: list[Pulled]) -> FailurePolicy | None:
        """Handle a batch: None, or the policy for its error. Here the order is checked."""
        never_overtaken(batch, self.logs[batch[0].sent.queue])
        if self.is_down:
            return AWAY
        return None if handled(batch) else batch[0].sent.policy


@dataclass
class Judge:
    """The breaker by its description: all results kept, the question asked anew each time."""

    is_open: bool = False
    results: list[tuple[float, object, bool]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)  # outages: from, until

    def excuses(self, now: float) -> bool:
        """CircuitBreakers with less than the memory between them are one; it may last so long."""
        if not self.is_open:
            return False
        began = self.spans[-1][0]
        for before, after in pairwise(reversed(self.spans)):
            if before[0] - after[1] > LIMITS.memory_s:
                break
            began = after[0]
        return now - began < LIMITS.outage_most_s

    def note(self, key: object, now: float, *, is_done: bool, is_probe: bool) -> None:
        if self.is_open:
            if is_done and is_probe:
                self.is_open, self.results = False, []
                self.spans[-1] = (self.spans[-1][0], now)
            return
        self.results.append((now, key, is_done))
        recent = [one for one in self.results[-LIMITS.results :] if one[0] >= now - LIMITS.memory_s]
        bad = [one[1] for one in recent if not one[2]]
        if not is_done and len(set(bad)) >= LIMITS.keys and len(bad) >= LIMITS.share * len(recent):
            self.is_open = True
            self.spans.append((now, now))


class Member:
    """What `client.consume_by_key` does around the queues of a topic, without threads."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disks = [b"", b""]
        self.charges: list[dict[int, int]] = [{}, {}]  # failures by offset, as they were written
        self.begin_anew()

    def begin_anew(self) -> None:
        """A process of this disk starts: it knows nothing but what lies there."""
        self.works: dict[int, ByKeyProcessQueue] = {}
        self.journals: dict[int, OffsetJournal] = {}
        self.broker_offset: dict[int, int] = {}
        self.breaker, self.judge = CircuitBreaker(LIMITS), Judge()
        self.in_flight: list[tuple[int, LaneBatch, int]] = []
        self.dying: list[tuple[int, LaneBatch]] = []  # whose head shall be a row, and is not yet

    def take(self, queue: int) -> None:
        """Begin with a queue at its committed offset."""
        start = self.world.committed[queue]
        found = decode_journal(self.disks[queue])
        # an offset that is not ours was set by somebody else: then nothing of the journal counts
        if found is None or start not in found.own_commits:
            self.charges[queue] = {}
        journal = OffsetJournal("us", start, self.disks[queue], is_reset=False)
        self.disks[queue] = journal.opening_records()
        self.journals[queue], self.broker_offset[queue] = journal, start
        self.works[queue] = ByKeyProcessQueue(ProcessQueue(start), journal, self.breaker)
        for sent in self.world.logs[queue]:
            sent.charged = sent.noted = self.charges[queue].get(sent.queue_offset, 0)

    def pull(self) -> None:
        """Fetch the next messages of each queue that has not enough."""
        for queue, key_queue in self.works.items():
            window = key_queue.window
            at = window.next_offset
            if at - self.broker_offset[queue] > SPAN or window.count > COUNT:
                continue
            log = self.world.logs[queue]
            fresh = [Pulled(sent.queue_offset, sent) for sent in log[at : at + PULL]]
            window.put(fresh, at + len(fresh))
            window.take(len(fresh))
            key_queue.add_messages((one.sent.key, one) for one in fresh)

    def begin(self, most: int) -> None:
        """Take a batch of each queue, if one may begin."""
        now = self.world.now
        for queue, key_queue in sorted(self.works.items(), key=lambda one: one[1].probe_rank(now)):
            taken = key_queue.take_batch(most, now)
            if taken is None:
                continue
            assert taken.is_probe == self.judge.is_open, "what begins in an outage is a probe"
            if taken.is_probe:
                assert len(taken.messages) == 1
                assert not any(other.is_probe for _, other, _ in self.in_flight), (
                    "two probes at once"
                )
            self.in_flight.append((queue, taken, most))

    def end(self, at: int, batch: int) -> None:
        """Run a taken: batches one after the other, up to a failure."""
        queue, taken, most = self.in_flight.pop(at % len(self.in_flight))
        key_queue, left = self.works[queue], most
        while taken.messages and left > 0:
            head = taken.messages[0]
            size = 1 if head.queue_offset <= taken.lane.one_by_one_until else batch
            own = taken.messages[:size]
            left -= size
            policy = self.world.call(own)
            self.judge.note(
                taken.key, self.world.now, is_done=policy is None, is_probe=taken.is_probe
            )
            if policy is None:
                key_queue.record_success(taken, len(own), self.world.now)
                assert self.breaker.is_open == self.judge.is_open
            elif not self.failed(queue, taken, len(own), policy):
                return
        key_queue.release(taken)

    def failed(self, queue: int, taken: LaneBatch, number: int, policy: FailurePolicy) -> bool:
        """Judge a failed call; whether its batch goes on. Here the policies are checked."""
        key_queue, sent, world = self.works[queue], taken.messages[0].sent, self.world
        decision, _ = key_queue.record_failure(taken, number, policy, 1000, world.now)
        assert self.breaker.is_open == self.judge.is_open, "an outage is judged as described"
        if number == 1 and not self.judge.excuses(world.now):
            sent.charged += 1
            is_due = policy.action is not FailureAction.NONE and sent.charged >= policy.after
        else:
            is_due = False
        wanted = policy.action if is_due else FailureAction.NONE
        assert decision.action is wanted, f"{sent} met {decision}, due was {wanted}"
        if wanted is FailureAction.NONE:
            assert taken.messages[0].reconsume_times == sent.charged, "a failure was miscounted"
            sent.noted = sent.charged
            key_queue.release(taken, world.now + decision.pause_ms / 1000)
        elif wanted is FailureAction.STOP:
            sent.fails = 0  # somebody mends the handler, and starts it again
            self.restart(queue, taken)
        elif wanted is FailureAction.STORE:
            self.dying.append((queue, taken))
            self.store()
        else:
            sent.end, sent.end_charged, sent.is_finished = wanted, sent.charged, True
            key_queue.finish(taken, 1)
            return True
        return False

    def store(self) -> None:
        """Ask the sink again for those that shall be rows."""
        while self.dying and self.world.sink_works:
            queue, taken = self.dying.pop()
            sent = taken.messages[0].sent
            sent.was_row = sent.is_finished = True
            sent.end, sent.end_charged = FailureAction.STORE, sent.charged
            self.works[queue].finish(taken, 1)
            self.works[queue].release(taken)

    def restart(self, queue: int, taken: LaneBatch) -> None:
        """Stop in peace and start again: what is in flight ends, all is committed."""
        self.works[queue].release(taken)
        held = list(self.works)
        self.leave(held)
        self.begin_anew()
        for one in held:
            self.take(one)

    def leave(self, queues: list[int]) -> None:
        """Let what is in hand of these queues end, write, tell, and let go of them."""
        for queue in queues:
            while any(of == queue for of, _, _ in self.in_flight):
                self.end(next(at for at, one in enumerate(self.in_flight) if one[0] == queue), 1)
        for queue in queues:
            if queue in self.works:
                self.write(queue)
                self.tell(queue, arrives=True, is_answered=True)
                self.dying = [one for one in self.dying if one[0] != queue]
                del self.works[queue]

    def write(self, queue: int) -> None:
        self.disks[queue] += self.works[queue].take_journal_records()
        self.charges[queue] = {one.queue_offset: one.noted for one in self.world.logs[queue]}

    def tell(self, queue: int, *, arrives: bool, is_answered: bool) -> None:
        self.write(queue)
        offset = self.works[queue].window.commit_offset
        log = self.world.logs[queue][:offset]
        assert all(sent.is_finished for sent in log), "an offset passed what is not finished"
        assert all(sent.was_row for sent in log if sent.end is FailureAction.STORE)
        self.disks[queue] += self.journals[queue].record_commit_begin(offset)
        if arrives:
            self.world.committed[queue] = offset
            if is_answered:
                self.disks[queue] += self.journals[queue].record_commit_done(offset)
                self.broker_offset[queue] = offset


class OrderInOutages(RuleBasedStateMachine):
    """Random lives; in the end the world is well and everything is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.members = [Member(self.world), Member(self.world)]
        self.world.holders = list(self.members)
        for queue, member in enumerate(self.members):
            member.take(queue)
        self.moves = count()

    @rule(
        queue=st.sampled_from(QUEUES),
        key=st.sampled_from(["a", "b", "c", "d", "e", BARRIER]),
        fails=st.sampled_from([0, 0, 0, 1, 2, FOR_EVER]),
        policy=st.sampled_from(sorted(POLICIES)),
        number=st.integers(1, 8),
    )
    def send(self, queue, key, fails, policy, number):
        log = self.world.logs[queue]
        if POLICIES[policy] is BLOCK:
            fails = min(fails, 5)
        for _ in range(number):
            log.append(Sent(queue, len(log), key, fails, POLICIES[policy]))
            fails, key = 0, "abcde"[(len(log) * 7) % 5]

    @rule(queue=st.sampled_from(QUEUES), policy=st.sampled_from(["dead letter", "skip", "store"]))
    def send_bad_ones(self, queue, policy):
        """Every key has a bad one: they look as an outage does."""
        log = self.world.logs[queue]
        for key in "abcde":
            log.append(Sent(queue, len(log), key, FOR_EVER, POLICIES[policy]))

    @rule(most=st.integers(1, 4))
    def begin(self, most):
        for member in self.members:
            member.pull()
            member.begin(most)

    @rule(who=st.integers(0, 1), at=st.integers(0, 9), batch=st.integers(1, 3))
    def end(self, who, at, batch):
        if self.members[who].in_flight:
            self.members[who].end(at, batch)

    @rule(rounds=st.integers(1, 4), most=st.integers(1, 4), passes=st.integers(0, 2))
    def work(self, rounds, most, passes):
        for _ in range(rounds):
            for member in self.members:
                member.pull()
                member.begin(most)
                while member.in_flight:
                    member.end(0, 2)
            self.world.now += passes

    @rule(passes=st.integers(1, 30))
    def wait(self, passes):
        self.world.now += passes

    @rule()
    def the_database_goes_or_comes_back(self):
        self.world.is_down = not self.world.is_down

    @rule()
    def the_sink_goes_or_comes_back(self):
        self.world.sink_works = not self.world.sink_works
        for member in self.members:
            member.store()

    @rule(queue=st.sampled_from(QUEUES), arrives=st.booleans(), is_answered=st.booleans())
    def tell(self, queue, arrives, is_answered):
        self.world.holders[queue].tell(queue, arrives=arrives, is_answered=is_answered)

    def has_worked(self):
        return sum(self.world.committed) + 6 < sum(map(len, self.world.logs))

    @precondition(lambda self: self.has_worked())
    @rule(who=st.integers(0, 1), heir=st.integers(0, 1))
    def crash(self, who, heir):
        """A process dies with all in hand; itself or the other takes its queues."""
        dead, heir = self.members[who], self.members[heir]
        queues = list(dead.works)
        dead.begin_anew()
        for queue in queues:
            heir.take(queue)
            self.world.holders[queue] = heir

    @rule(queue=st.sampled_from(QUEUES))
    def rebalance(self, queue):
        """A queue moves in peace."""
        leaver = self.world.holders[queue]
        leaver.leave([queue])
        heir = self.members[1 - self.members.index(leaver)]
        heir.take(queue)
        self.world.holders[queue] = heir

    @invariant()
    def nothing_dies_of_an_outage_alone(self):
        for log in self.world.logs:
            for sent in log:
                if sent.end is FailureAction.DEAD_LETTER and sent.policy.action is not sent.end:
                    assert sent.end_charged >= AWAY.after, "dead before its attempts were used"

    def teardown(self):
        world = self.world
        world.is_down, world.sink_works = False, True
        total = sum(map(len, world.logs))
        for _ in range(60 * total + 60):
            for member in self.members:
                member.store()
                member.pull()
                member.begin(4)
                while member.in_flight:
                    member.end(0, 2)
                for queue in list(member.works):
                    member.tell(queue, arrives=True, is_answered=True)
            world.now += 31
            if world.committed == [len(log) for log in world.logs]:
                break
        assert world.committed == [len(log) for log in world.logs], f"left after {total}: {world}"
        for sent in (*world.logs[0], *world.logs[1]):
            ended_well(sent)
        for member in self.members:
            assert all(decode_journal(disk) is not None for disk in member.disks if disk)


def ended_well(sent: Sent) -> None:
    """Done if it went well at last, else by the end that its policy says, or that of an outage."""
    assert sent.is_finished
    if sent.end is None:
        assert not sent.fails, "done, though it never went well"
    elif sent.fails:
        assert sent.end in (sent.policy.action, FailureAction.DEAD_LETTER)


TestOrderInOutages = OrderInOutages.TestCase
TestOrderInOutages.settings = settings(max_examples=100, stateful_step_count=40)
