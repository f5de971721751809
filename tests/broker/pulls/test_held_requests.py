"""Requests of any kind are held until an event, a deadline, a close or the end of a connection."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.broker.pulls import held_requests
from cometmq.broker.pulls.held_requests import HeldRequest, HeldRequests, WakeDecision
from cometmq.errors import Reject
from cometmq.net.handler import Reply
from cometmq.testing.sim_loop import SimLoop
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from cometmq.net.connection import Connection


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(scenario)


class FakeConnection:
    """As much of a connection as held requests use."""

    def __init__(self) -> None:
        self.addr, self.address = "fake:1", "fake"
        self.is_closed = False
        self.held: dict[int, tuple[Command, Callable[..., None]]] = {}
        self.answers: list[tuple[int, int]] = []
        self._on_close: list[Callable[[FakeConnection], None]] = []

    def on_close(self, callback: Callable[[FakeConnection], None]) -> None:
        self._on_close.append(callback)

    def expect(self, command: Command) -> None:
        """Note, as the dispatcher does, that this request will be answered later."""
        self.held[id(command)] = (command, self._take)

    def _take(self, _connection: object, command: Command, answer: Reply) -> None:
        self.answers.append((command.opaque, answer.code))

    def close(self) -> None:
        self.is_closed = True
        for callback in self._on_close:
            callback(self)


class GroupWatch(HeldRequest):
    """Not a pull: it waits for events of two topics and of a group."""

    __slots__ = ("_keys", "answered", "least", "rechecks")

    def __init__(self, command: Command, connection: FakeConnection, *keys: Hashable) -> None:
        super().__init__(command, cast("Connection", connection))
        self._keys = keys
        self.least = 0
        self.answered = 0
        self.rechecks = 0

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return self._keys

    def on_event(self, event: object) -> WakeDecision:
        if event == "maybe":
            return WakeDecision.RECHECK
        return (
            WakeDecision.ANSWER
            if isinstance(event, int) and event >= self.least
            else WakeDecision.IGNORE
        )

    def recheck(self) -> bool:
        self.rechecks += 1
        return self.rechecks > 1

    def answer(self) -> Reply:
        self.answered += 1
        return Reply(7)


TWO_TOPICS = (("topic", "A"), ("topic", "B"))
GROUP = ("group", "G")


def held(
    table: HeldRequests,
    connection: FakeConnection,
    *keys: Hashable,
    timeout_ms: int = 1000,
    least: int = 0,
    kept_bytes: int = 0,
) -> GroupWatch:
    command = request(9999, len(connection.held) + len(connection.answers))
    watch = GroupWatch(command, connection, *keys)
    watch.least = least
    watch.kept_bytes = kept_bytes
    table.hold(watch, timeout_ms)
    connection.expect(command)
    return watch


def test_a_request_that_waits_on_two_topics_is_woken_by_either() -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        first, second = (held(table, connection, *TWO_TOPICS) for _ in range(2))
        second.least = 5
        table.notify(("topic", "B"), 1)
        table.notify(("topic", "A"), 1)
        await asyncio.sleep(0.01)
        assert (first.answered, second.answered, table.count) == (1, 0, 1)
        table.notify(("topic", "A"), 5)
        await asyncio.sleep(0.01)
        assert (first.answered, second.answered, table.count) == (1, 1, 0)
        assert connection.answers == [(0, 7), (1, 7)]
        assert not table.has_key(("topic", "A"))

    run(scenario())


def test_a_request_that_waits_on_a_group_is_woken_by_its_event_and_by_no_other() -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        watch = held(table, connection, GROUP)
        table.notify(("group", "H"), 1)
        await asyncio.sleep(0.01)
        assert watch.answered == 0
        table.notify(GROUP, 1)
        table.notify(GROUP, 1)
        await asyncio.sleep(0.01)
        assert watch.answered == 1

    run(scenario())


def test_an_event_that_may_concern_a_request_has_it_look_again() -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        watch = held(table, connection, GROUP)
        table.notify(GROUP, "maybe")
        table.notify(GROUP, "maybe")
        await asyncio.sleep(0.01)
        assert (watch.rechecks, watch.answered) == (1, 0)
        table.notify(GROUP, "maybe")
        await asyncio.sleep(0.01)
        assert (watch.rechecks, watch.answered) == (2, 1)

    run(scenario())


def test_a_recheck_that_fails_wakes_its_request_and_leaves_the_others_alone(
    monkeypatch, caplog
) -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        broken, other, third = (held(table, connection, GROUP) for _ in range(3))
        other.rechecks = third.rechecks = 1

        def fail() -> bool:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(GroupWatch, "recheck", lambda self: self is not broken or fail())
        table.notify(GROUP, "maybe")
        await asyncio.sleep(0.01)
        assert (broken.answered, other.answered, third.answered, table.count) == (1, 1, 1, 0)
        assert "fake:1 could not be rechecked" in caplog.text

    run(scenario())


def test_a_deadline_answers_a_request_and_is_noticed_soon() -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        watch = held(table, connection, GROUP, timeout_ms=1000)
        await asyncio.sleep(0.99)
        assert watch.answered == 0
        await asyncio.sleep(0.01 + 2 * held_requests.TIMER_STEP_S)
        assert watch.answered == 1

    run(scenario())


def test_a_close_answers_all_and_a_lost_connection_nobody() -> None:
    async def scenario() -> None:
        table, here, gone = HeldRequests(10, 10), FakeConnection(), FakeConnection()
        kept = held(table, here, *TWO_TOPICS, GROUP)
        lost = held(table, gone, *TWO_TOPICS, GROUP)
        gone.close()
        assert table.count == 1
        table.close()
        assert (kept.answered, lost.answered, table.count) == (1, 0, 0)

    run(scenario())


def test_keys_that_are_gone_wake_all_that_wait_on_one_of_them() -> None:
    async def scenario() -> None:
        table, connection = HeldRequests(10, 10), FakeConnection()
        both, group = held(table, connection, *TWO_TOPICS), held(table, connection, GROUP)
        table.wake_keys([*TWO_TOPICS, ("topic", "of nobody")])
        await asyncio.sleep(0.01)
        assert (both.answered, group.answered) == (1, 0)

    run(scenario())


@pytest.mark.parametrize("bound", ["in all", "bytes", "per connection", "per connection and key"])
def test_beyond_a_bound_a_request_is_refused(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_requests, "HELD_PER_CONNECTION_MAX", 4)
    monkeypatch.setattr(held_requests, "HELD_PER_KEY_MAX", 3)
    monkeypatch.setattr(held_requests, "HELD_BYTES_MAX", 100)

    async def scenario() -> None:
        table, connection = HeldRequests(2 if bound == "in all" else 100, 100), FakeConnection()
        kept_bytes = 0
        if bound == "in all":
            waiting = [held(table, FakeConnection(), GROUP) for _ in range(2)]
        elif bound == "bytes":
            waiting = [held(table, FakeConnection(), ("group", 1), kept_bytes=99)]
            kept_bytes = 2
        elif bound == "per connection":
            waiting = [held(table, connection, ("group", number)) for number in range(4)]
        else:
            waiting = [held(table, connection, ("topic", "A"), GROUP) for _ in range(3)]
        with pytest.raises(Reject) as refused:
            held(table, connection, GROUP, kept_bytes=kept_bytes)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        assert table.count == len(waiting)
        table.close()
        assert [watch.answered for watch in waiting] == [1] * len(waiting)

    run(scenario())


KEYS = (*TWO_TOPICS, GROUP)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 2), st.sets(st.sampled_from(KEYS), min_size=1)),
        st.tuples(st.just("notify"), st.sampled_from(KEYS), st.sampled_from([0, 1, "maybe", None])),
        st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.03, 0.3]), st.none()),
        st.tuples(st.just("wake"), st.sampled_from(KEYS), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 2), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_whatever_happens_a_request_leaves_exactly_once(steps: list[tuple[Any, Any, Any]]) -> None:
    async def scenario() -> None:
        table = HeldRequests(1000, 1000)
        connections = [FakeConnection() for _ in range(3)]
        watches: list[tuple[GroupWatch, FakeConnection]] = []
        for kind, what, more in steps:
            if kind == "hold" and not connections[what].is_closed:
                connection = connections[what]
                watches.append((held(table, connection, *more, timeout_ms=200), connection))
            elif kind == "notify":
                table.notify(what, more)
            elif kind == "sleep":
                await asyncio.sleep(what)
            elif kind == "wake":
                table.wake_keys([what])
            elif kind == "drop":
                connections[what].close()
            assert 0 <= table.count <= len(watches)
        table.close()
        await asyncio.sleep(1)
        assert table.count == 0
        assert not any(table.has_key(key) for key in KEYS)
        for watch, connection in watches:
            assert watch.answered <= 1
            assert watch.answered == 1 or connection.is_closed
        for connection in connections:
            opaques = [opaque for opaque, _ in connection.answers]
            assert len(opaques) == len(set(opaques))

    run(scenario())


def test_the_address_that_holds_most_makes_room_for_others() -> None:
    async def scenario() -> None:
        table, many, few = HeldRequests(6, 4), FakeConnection(), FakeConnection()
        few.address = "other"
        first = [held(table, many, GROUP) for _ in range(4)]
        with pytest.raises(Reject, match="no address has more than yours"):
            held(table, many, GROUP)
        mine = [held(table, few, GROUP) for _ in range(2)]
        await asyncio.sleep(0)
        assert [watch.answered for watch in (*first, *mine)] == [1, 1, 0, 0, 0, 0]
        with pytest.raises(Reject, match="no address has more than yours"):
            held(table, few, GROUP)
        other = [held(table, many, ("topic", "A")) for _ in range(2)]
        assert table.count == 6
        held(table, few, ("topic", "B"))  # in all it is the larger share that goes
        await asyncio.sleep(0)
        assert (first[2].answered, table.count) == (1, 6)
        table.set_bounds(2, 2)
        with pytest.raises(Reject):
            held(table, many, ("topic", "A"))
        assert other

    run(scenario())


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 5]), st.integers(0, 3)), max_size=30),
    st.integers(1, 200),
)
@settings(max_examples=30, deadline=None)
def test_many_on_one_key_are_woken_as_few_are(events: list[tuple[int, int]], count: int) -> None:
    async def scenario() -> None:
        table = HeldRequests(1000, 1000)
        watches = [held(table, FakeConnection(), GROUP, least=at % 7) for at in range(count)]
        for event, pause in events:
            table.notify(GROUP, event, event)
            for _ in range(pause):
                await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        largest = max((event for event, _ in events), default=-1)
        assert [watch.answered for watch in watches] == [
            int(at % 7 <= largest) for at in range(count)
        ]
        table.close()

    run(scenario())


def test_an_iteration_asks_a_few_of_very_many() -> None:
    asked: list[int] = []

    class Asked(GroupWatch):
        __slots__ = ()

        def on_event(self, event: object) -> WakeDecision:
            asked.append(1)
            return super().on_event(event)

    async def scenario() -> None:
        table = HeldRequests(1000, 1000)
        for _ in range(1000):
            connection, command = FakeConnection(), request(1, 1)
            connection.expect(command)
            table.hold(Asked(command, connection, GROUP), 60_000)
        for number in range(5_000):  # nobody wants them
            table.notify(GROUP, -1, number % 8)
        assert not asked
        most = 0
        for _ in range(200):
            before = len(asked)
            await asyncio.sleep(0)
            most = max(most, len(asked) - before)
        assert most <= held_requests.ASKED_AT_ONCE_MAX
        assert len(asked) == 8_000
        for number in range(held_requests.EVENTS_MAX + 1):  # too much to remember: all pull again
            table.notify(GROUP, -1, number)
        await asyncio.sleep(0.1)
        assert table.count == 0

    run(scenario())


def test_very_many_deadlines_at_one_time_are_met_a_few_an_iteration() -> None:
    answered: list[int] = []
    seen: list[int] = []

    class Noted(GroupWatch):
        __slots__ = ()

        def answer(self) -> Reply:
            if not answered:
                asyncio.get_running_loop().call_soon(look)
            answered.append(1)
            return super().answer()

    def look() -> None:
        seen.append(len(answered))
        if len(answered) < 1000:
            asyncio.get_running_loop().call_soon(look)

    async def scenario() -> None:
        table = HeldRequests(1000, 1000)
        for _ in range(1000):
            connection, command = FakeConnection(), request(1, 1)
            connection.expect(command)
            table.hold(Noted(command, connection, GROUP), 100)
        await asyncio.sleep(1)
        assert (len(answered), table.count) == (1000, 0)

    run(scenario())
    steps = [after - before for before, after in pairwise([0, *seen])]
    assert max(steps) <= held_requests.BATCH_MAX
