"""What was acknowledged survives every crash that its flush mode covers."""

import asyncio

import pytest

from store.lives import LossError, live, play

SEEDS = 1_000


@pytest.mark.powercut
@pytest.mark.parametrize("part", range(4))
def test_under_sync_flush_no_power_cut_loses_what_was_acknowledged(part):
    play(range(part * SEEDS // 4, (part + 1) * SEEDS // 4))


def test_under_async_flush_a_killed_process_loses_nothing_and_a_power_cut_only_the_end():
    play(range(300), flush="ASYNC_FLUSH")


def test_many_queue_files_synced_all_at_once_are_as_safe(monkeypatch):
    monkeypatch.setattr("cometmq.store.queues.consume_queues._MANY", 0)
    play(range(20_000, 20_100))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_more_power_cuts(part):
    play(range(10_000 + part * 500, 10_000 + (part + 1) * 500))


def _first_loss(**how):
    for seed in range(200):
        try:
            asyncio.run(live(seed, **how))
        except LossError as loss:
            return str(loss)
    return ""


def test_the_story_notices_when_bytes_are_not_synced():
    assert _first_loss(syncs=False)


def test_the_story_notices_when_names_are_not_synced():
    assert _first_loss(names=False)


def test_a_seed_tells_the_same_story_twice():
    assert asyncio.run(live(7)) == asyncio.run(live(7))
