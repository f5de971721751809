"""Parked keys over thousands of random lives: kills at every step, stale owners, late records."""

import asyncio
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.parking.parking_world import Chaos, Member, World
from cometmq.client.parking import queue_parking
from cometmq.rules.failures.failure_policy import ParkBounds
from cometmq.testing.sim_loop import SimLoop
from oracle_runs import record_run

REPLAY = "pytest -m slow tests/client/parking/test_queue_parking.py"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Each life logs what it parks, and is shorter than the minute of real brokers."""
    monkeypatch.setattr(queue_parking, "SAVED_S", 0.4)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def live(seed, *, redrives, kills_brokers=False):
    """One life of a group; bounds of parking are small, or short, for some seeds."""
    bounds = ParkBounds(
        count=6 if seed % 3 else 1000,
        age_s=86_400 if seed % 4 else 1,
        at_bound="block" if seed % 5 else "dead_letter",
    )

    async def scenario():
        world = World(seed, bounds)
        await Chaos(world, redrives, kills_brokers=kills_brokers).run()
        return world

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(scenario())


@pytest.mark.parametrize("redrives", [False, True])
@pytest.mark.parametrize("kills_brokers", [False, True])
def test_no_life_loses_a_message_or_breaks_the_order_of_a_key(redrives, kills_brokers):
    for seed in range(15):
        live(seed, redrives=redrives, kills_brokers=kills_brokers)


def test_an_owner_that_lost_its_lock_does_not_make_others_forget_what_was_dropped():
    """It writes OPEN behind a message that it could not commit, which the next owner reads."""
    live(1408864, redrives=False)


def test_a_broker_that_forgets_offsets_does_not_bring_back_what_was_dropped():
    """It shows messages again that the group had committed, and that lie before the last OPEN."""
    live(17, redrives=True, kills_brokers=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_lives_lose_nothing_and_break_no_order():
    happened = Counter()

    @settings(max_examples=10_000)
    @given(st.integers(0, 2**32), st.booleans(), st.booleans())
    def lives(seed, redrives, kills_brokers):
        world = live(seed, redrives=redrives, kills_brokers=kills_brokers)
        happened.update(
            lives=1, owners=world.owners, messages=len(world.queue), calls=len(world.calls),
            parked=world.parked_once, dead_letters=world.dead_letters, dropped=len(world.gone),
            broker_kills=world.broker_kills,
        )  # fmt: skip

    lives()
    record_run("parked-keys", replay=REPLAY, **happened)


@pytest.mark.parametrize("at_bound", ["block", "dead_letter", "stop"])
def test_a_key_that_is_parked_for_too_long_does_what_its_policy_says(at_bound):
    async def scenario():
        world = World(1, ParkBounds(age_s=60, at_bound=at_bound))
        world.send("a", is_bad=True)
        world.send("a")
        world.send("b")
        world.owner = member = Member(world)
        await asyncio.sleep(50)
        assert [one.key for one in world.truth.messages()] == ["a", "a"]
        assert (world.finished, member.stopped) == ({("b", 0)}, "")
        await asyncio.sleep(30)
        world.send("a")
        world.send("b")
        await asyncio.sleep(30)
        member.kill()
        return world, member

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        world, member = runner.run(scenario())
    parked, handled = list(world.truth.messages()), [(key, at) for _, key, at in world.calls]
    if at_bound == "block":
        assert (len(parked), world.committed, world.dead_letters) == (2, 3, 0)
        assert handled == [("a", 0), ("b", 0), ("b", 1)], "a2 waits in its queue"
    elif at_bound == "dead_letter":
        assert (parked, world.committed, world.dead_letters) == ([], 5, 2)
        assert ("a", 2) in handled, "the key goes on"
    else:
        assert "the key 'a'" in member.stopped
        assert "more than 60 s" in member.stopped
        assert len(parked) == 2


def test_lives_park_messages_and_handle_them():
    """The two tests above would prove nothing of a world in which nothing is parked."""
    worlds = [live(seed, redrives=True) for seed in (1, 2, 3, 5, 25)]
    assert sum(world.parked_once for world in worlds) > 50
    assert all(world.calls for world in worlds)
    assert any(world.dead_letters for world in worlds)
