"""All kinds of messages, groups that come and go, a hostile client and kills: nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from oracle_runs import record_run
from soak.everything import LONG_S, Soak

MUST_HAPPEN = ("attacks", "kills_of_the_broker", "messages_handled", "ordered_steps")


def run(root, seed: int, flush: str, seconds: float) -> None:
    soak = Soak(root, seed, flush)
    asyncio.run(soak.run(seconds))
    figures = {what.replace(" ", "_"): number for what, number in soak.report.items() if number}
    replay = f"python -m soak.everything --seconds {seconds:.0f} --seed {seed} --flush {flush}"
    for what in MUST_HAPPEN:  # a zero fails
        figures.setdefault(what, 0)
    name = "everything" if seconds < LONG_S else "everything-long"
    record_run(name, flush, replay=replay, **figures)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_minute_of_everything_loses_nothing(tmp_path, flush):
    run(tmp_path, 1, flush, 60)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_an_hour_of_everything_loses_nothing(tmp_path):
    run(tmp_path, 2, "ASYNC_FLUSH", 3600)
