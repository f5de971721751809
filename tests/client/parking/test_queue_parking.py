"""Parked keys over thousands of random lives: kills at every step, stale owners, late records."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.parking.parking_world import Chaos, World
from cometmq.rules.failures.failure_policy import ParkBounds
from cometmq.testing.sim_loop import SimLoop

LIVES = given(st.integers(0, 2**32), st.booleans())


def live(seed, *, redrives):
    """One life of a group; with `seed` not divisible by three the bound of parking is small."""

    async def scenario():
        world = World(seed, ParkBounds(count=6 if seed % 3 else 1000))
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
@settings(max_examples=10_000)
@LIVES
def test_ten_thousand_lives_lose_nothing_and_break_no_order(seed, redrives):
    live(seed, redrives=redrives)


def test_lives_park_messages_and_handle_them():
    """The two tests above would prove nothing of a world in which nothing is parked."""
    worlds = [live(seed, redrives=True) for seed in range(5)]
    assert sum(world.parked_once for world in worlds) > 50
    assert all(world.calls for world in worlds)
