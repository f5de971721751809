"""What many busy connections cost another one: counted in frames, by a clock that frames move."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from cometmq.net.handler import Reply
from cometmq.net.iteration_budget import (
    BUDGET_S,
    FIRST_SHARE_S,
    LITTLE_BYTES,
    IterationBudget,
)
from cometmq.wire.command import Command, request
from net.serving import Raw, run, serving, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection

COSTLY, CHEAP = 1, 2
COST_S = BUDGET_S / 4
ATTACKERS, FRAMES = 50, 200


class FrameClock:
    """Time that passes only while frames are handled; `handled` has their codes, in order."""

    def __init__(self, cost_s: float = COST_S) -> None:
        self.cost_s = cost_s
        self.handled: list[int] = []

    def now(self) -> float:
        return len(self.handled) * self.cost_s

    def handle(self, command: Command, _connection: Connection) -> Reply:
        self.handled.append(command.code)
        return Reply(body=command.body)


def costs_between(handled: list[int]) -> list[int]:
    """How many costly frames were handled before each cheap one, since the one before."""
    counts, count = [], 0
    for code in handled:
        if code == CHEAP:
            counts.append(count)
        count = 0 if code == CHEAP else count + 1
    return counts


async def attackers(port: int, frames: int) -> list[socket.socket]:
    """Connections that have sent so many costly frames each, in one piece."""
    made = []
    for _ in range(ATTACKERS):
        link = socket.create_connection(("127.0.0.1", port))
        link.sendall(b"".join(request(COSTLY, n).encode() for n in range(frames)))
        made.append(link)
    return made


def test_a_client_is_served_while_many_other_connections_are_busy() -> None:
    clock = FrameClock()

    async def scenario() -> None:
        async with serving(
            {COSTLY: clock.handle, CHEAP: clock.handle}, monotonic_s=clock.now
        ) as served:
            neighbour = await served.connect()
            links = await attackers(served.port, FRAMES)
            while clock.handled.count(COSTLY) < ATTACKERS * FRAMES:
                await neighbour.call(CHEAP)
            for link in links:
                link.close()

    run(scenario())
    counts = costs_between(clock.handled)
    shares = round(2 * BUDGET_S / COST_S)
    assert max(counts) <= 3 * shares, "the shares of three iterations, also when all come at once"


def test_all_frames_of_busy_connections_are_handled_in_their_order() -> None:
    clock = FrameClock(BUDGET_S * 2)  # one frame is too much for an iteration
    seen: dict[Connection, list[int]] = {}

    def note(command: Command, connection: Connection) -> Reply:
        seen.setdefault(connection, []).append(command.opaque)
        return clock.handle(command, connection)

    async def scenario() -> None:
        async with serving({COSTLY: note}, monotonic_s=clock.now) as served:
            raws = [await served.connect() for _ in range(5)]
            for raw in raws:
                raw.send(*(request(COSTLY, n) for n in range(40)))
            for raw in raws:
                assert [(await raw.next()).opaque for _ in range(40)] == list(range(40))
            for number, raw in enumerate(raws):  # and is read from again
                assert (await raw.call(COSTLY, 100 + number)).opaque == 100 + number

    run(scenario())
    assert [found[:40] for found in seen.values()] == [list(range(40))] * 5


def test_what_a_client_sent_before_it_left_is_handled_though_it_had_to_wait() -> None:
    clock = FrameClock(BUDGET_S)

    async def scenario() -> None:
        async with serving({COSTLY: clock.handle}, monotonic_s=clock.now) as served:
            for _ in range(4):
                with socket.create_connection(("127.0.0.1", served.port)) as link:
                    link.sendall(request(COSTLY, 1, oneway=True).encode() * 30)
                    link.shutdown(socket.SHUT_WR)
            await until(lambda: len(clock.handled) == 120 and not served.server.protocols)

    run(scenario())


def test_a_connection_that_breaks_while_it_waits_is_forgotten() -> None:
    clock = FrameClock(BUDGET_S)

    async def scenario() -> None:
        async with serving({COSTLY: clock.handle}, monotonic_s=clock.now) as served:
            link = await served.connect()
            link.send(*(request(COSTLY, n) for n in range(500)))
            await until(lambda: clock.handled)
            served.connections[0].abort()
            await until(lambda: not served.server.protocols)
            count = len(clock.handled)
            other = await served.connect()
            assert (await other.call(COSTLY)).code == 0
            assert len(clock.handled) == count + 1 < 500

    run(scenario())


def test_an_unfinished_frame_in_a_chunk_that_waits_is_put_together() -> None:
    clock = FrameClock(BUDGET_S)
    frame = request(COSTLY, 7, body=bytes(range(256)) * 40).encode()

    async def scenario(raw: Raw, cut: int) -> None:
        raw.writer.write(frame * 3 + frame[:cut])
        await asyncio.sleep(0)
        raw.writer.write(frame[cut:] + frame)
        for _ in range(5):
            assert len((await raw.next()).body) == 256 * 40

    async def scenarios() -> None:
        async with serving({COSTLY: clock.handle}, monotonic_s=clock.now) as served:
            raw = await served.connect()
            for cut in (1, 7, 8, 100, len(frame) - 1):
                await scenario(raw, cut)

    run(scenarios())


class Waiter:
    """A connection that has so many pieces of work, each of the clock's `step_s`."""

    def __init__(self, name: str, pieces: int, clock: HandClock, done: list[str]) -> None:
        self.name, self.pieces, self._clock, self._done = name, pieces, clock, done

    def go_on(self, until: float) -> bool:
        while self.pieces:
            self.pieces -= 1
            self._done.append(self.name)
            self._clock.now += self._clock.step_s
            if self._clock.now >= until:
                break
        return self.pieces > 0


class HandClock:
    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s


@pytest.fixture
def turns() -> list[Callable[[], None]]:
    """What was to be called in the next iteration."""
    return []


def test_connections_that_wait_longest_are_served_first_and_those_just_served_last(
    turns: list[Callable[[], None]],
) -> None:
    clock, done = HandClock(FIRST_SHARE_S), []
    budget = IterationBudget(turns.append, lambda: clock.now)
    for name, pieces in (("a", 9), ("b", 9), ("c", 1), ("d", 1)):
        budget.wait(Waiter(name, pieces, clock, done), is_new=True)
    turns.pop(0)()
    assert done[:5] == ["a", "b", "c", "d", "a"]
    budget.wait(Waiter("e", 1, clock, done), is_new=True)
    before = len(done)
    turns.pop(0)()
    assert done[before : before + 2] == ["e", "b"]


def test_new_connections_that_wait_are_served_before_others(
    turns: list[Callable[[], None]],
) -> None:
    clock = HandClock(FIRST_SHARE_S)
    budget = IterationBudget(turns.append, lambda: clock.now)
    assert not budget.is_over()
    clock.now += BUDGET_S
    assert budget.is_over(), "the same iteration has lasted so long"
    budget.wait(Waiter("a", 1, clock, []), is_new=True)
    assert budget.is_over()
    while turns:
        turns.pop(0)()
    assert not budget.is_over()


def test_connections_that_brought_a_little_are_served_before_those_that_brought_much(
    turns: list[Callable[[], None]],
) -> None:
    clock, done = HandClock(BUDGET_S), []
    budget = IterationBudget(turns.append, lambda: clock.now)
    for number in range(5):
        much = Waiter(f"much {number}", 2, clock, done)
        budget.wait(much, is_new=True, brought=LITTLE_BYTES + 1)
    for number in range(3):
        little = Waiter(f"little {number}", 1, clock, done)
        budget.wait(little, is_new=True, brought=LITTLE_BYTES)
    while turns:
        turns.pop(0)()
    served = [at for at, name in enumerate(done) if name.startswith("little")]
    # of each kind one is served in an iteration, so that many of one starve none of the others
    assert [done[at] for at in served] == ["little 0", "little 1", "little 2"]
    assert served[-1] <= 6
    assert done.index("much 0") == 1
    assert len(done) == 13
