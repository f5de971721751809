"""Parked keys over thousands of random lives: kills at every step, stale owners, late records."""

import asyncio
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.parking.parking_world import Chaos, World
from cometmq.rules.failures.failure_policy import ParkBounds
from cometmq.testing.sim_loop import SimLoop
from oracle_runs import record_run

REPLAY = "pytest -m slow tests/client/parking/test_queue_parking.py"


@pytest.fixture(autouse=True)
def quiet():
    """Each life logs what it parks."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def live(seed, *, redrives):
    """One life of a group; bounds of parking are small, or short, for some seeds."""
    bounds = ParkBounds(
        count=6 if seed % 3 else 1000,
        age_s=86_400 if seed % 4 else 1,
        at_bound="block" if seed % 5 else "dead_letter",
    )

    async def scenario():
        world = World(seed, bounds)
        await Chaos(world, redrives).run()
        return world

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(scenario())


@pytest.mark.parametrize("redrives", [False, True])
def test_no_life_loses_a_message_or_breaks_the_order_of_a_key(redrives):
    for seed in range(15):
        live(seed, redrives=redrives)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_lives_lose_nothing_and_break_no_order():
    happened = Counter()

    @settings(max_examples=10_000)
    @given(st.integers(0, 2**32), st.booleans())
    def lives(seed, redrives):
        world = live(seed, redrives=redrives)
        happened.update(
            lives=1, owners=world.owners, messages=len(world.queue), calls=len(world.calls),
            parked=world.parked_once, dead_letters=world.dead_letters, dropped=len(world.gone),
        )  # fmt: skip

    lives()
    record_run("parked-keys", replay=REPLAY, **happened)


def test_lives_park_messages_and_handle_them():
    """The two tests above would prove nothing of a world in which nothing is parked."""
    worlds = [live(seed, redrives=True) for seed in (1, 2, 3, 5, 25)]
    assert sum(world.parked_once for world in worlds) > 50
    assert all(world.calls for world in worlds)
    assert any(world.dead_letters for world in worlds)
