"""What was acknowledged survives every crash that its flush mode covers."""

import asyncio

import pytest

from oracle_runs import record_run
from store.crash_scenarios import LossError, run_seed, run_seeds

SEEDS = 1_000


@pytest.mark.powercut
@pytest.mark.parametrize("part", range(4))
def test_under_sync_flush_no_power_cut_loses_what_was_acknowledged(part):
    counts = run_seeds(range(part * SEEDS // 4, (part + 1) * SEEDS // 4))
    record_run("power-cut-sync-flush", f"part {part}", replay="make powercut", **counts)


def test_under_async_flush_a_killed_process_loses_nothing_and_a_power_cut_only_the_end():
    counts = run_seeds(range(300), flush="ASYNC_FLUSH")
    replay = "pytest tests/store/test_power_cut.py -k async_flush"
    record_run("power-cut-async-flush", replay=replay, **counts)


def test_many_queue_files_synced_all_at_once_are_as_safe(monkeypatch):
    monkeypatch.setattr("cometmq.store.queues.consume_queues._MANY", 0)
    run_seeds(range(20_000, 20_100))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_more_power_cuts_lose_nothing_acknowledged(part):
    counts = run_seeds(range(10_000 + part * 500, 10_000 + (part + 1) * 500))
    replay = "pytest -m slow tests/store/test_power_cut.py"
    record_run("power-cut-10000", f"part {part}", replay=replay, **counts)


def _first_loss(**how):
    for seed in range(200):
        try:
            asyncio.run(run_seed(seed, **how))
        except LossError as loss:
            return str(loss)
    return ""


def test_the_scenario_notices_when_bytes_are_not_synced():
    assert _first_loss(syncs=False)


def test_the_scenario_notices_when_names_are_not_synced():
    assert _first_loss(names=False)


def test_a_seed_gives_the_same_scenario_twice():
    assert asyncio.run(run_seed(7)) == asyncio.run(run_seed(7))
