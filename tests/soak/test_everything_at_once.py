"""All kinds of messages, groups that come and go, a hostile client and kills: nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from soak.everything import Soak

HAPPENED = ("attacks", "members", "kills of the broker", "messages handled", "ordered steps")


def run(root, seed: int, flush: str, seconds: float) -> None:
    soak = Soak(root, seed, flush)
    asyncio.run(soak.run(seconds))
    idle = [what for what in HAPPENED if not soak.report[what]]
    assert not idle, f"seed {seed}: nothing of this happened: {idle}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_minute_of_everything_loses_nothing(tmp_path, flush):
    run(tmp_path, 1, flush, 60)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_an_hour_of_everything_loses_nothing(tmp_path):
    run(tmp_path, 2, "ASYNC_FLUSH", 3600)
