"""What holds for all tests: how hypothesis judges, and how tests share workers of pytest-xdist.

Hypothesis judges what comes out, never how long an example took. Most tests wait rather than
compute, so `-n auto` starts twice as many workers as there are cores; tests that start a Spark
session take turns on one of them, for each brings a Java machine of its own, and the year of
flights is read on one of them.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

slow_is_well = [HealthCheck.too_slow]
settings.register_profile("cometmq", deadline=None, suppress_health_check=slow_is_well)
# A mutant needs a counterexample, not the smallest one (scripts/mutants.py).
no_shrinking = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile(
    "mutants",
    deadline=None,
    suppress_health_check=slow_is_well,
    phases=no_shrinking,
    database=None,
    derandomize=True,
)
settings.load_profile("cometmq")

WORKERS_MAX = 8


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min(2 * len(os.sched_getaffinity(0)), WORKERS_MAX)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "whole_year" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("flights"))


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.getoption("loadgroup", default=False):
        return
    alone = [
        item.nodeid
        for item in session.items
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
    ]
    assert not alone, f"pytest-xdist does not keep groups together: {alone[:3]}"
