"""What holds for all tests: how hypothesis judges, and how tests share workers of pytest-xdist.

Hypothesis judges what comes out, never how long an example took. Most tests wait rather than
compute, so `-n auto` starts twice as many workers as there are cores. Some tests keep to one of
them: those of one Spark session, for each session brings a Java machine of its own; those that
start a program with such a session, so that there are two machines at most; those that read the
year of flights; and those that read the whole source tree, which is parsed once.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from cometmq import native

HELPERS = ("broker", "client", "crash", "interop", "namesrv", "net", "parity", "store", "wire")
SPARK_HELPERS = ("spark.fault_rounds", "spark.live", "spark.planned_case", "spark.scripted")
"""Not those that are sent to Spark's workers."""
pytest.register_assert_rewrite(*HELPERS, *SPARK_HELPERS)  # so that a failure shows the values

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

if "MUTANT_UNDER_TEST" in os.environ:  # mutmut puts three more calls before each
    sys.setrecursionlimit(6 * sys.getrecursionlimit())

WORKERS_MAX = 8
SPARK_TIMEOUT_S = 400
"""Long, because a test that is cut off in a call of Spark's JVM leaves the answer to the next one:
all later tests of the session then fail."""
HOUSE = Path(__file__).parent / "house"
MUTMUT_STATS = Path("mutmut-stats.json")
"""Where mutmut runs tests: how long each of them took."""


@pytest.fixture(scope="module", params=["c", "python"])
def each_form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module with the hot loops in C, and again with those in Python."""
    if request.param == "c" and native.c is None:
        pytest.skip(f"the hot loops in C are missing: {native.why_not}")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(native, "c", None)
        yield request.param


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min(2 * len(os.sched_getaffinity(0)), WORKERS_MAX)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group := _group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
    if MUTMUT_STATS.exists():  # most mutants are killed by a quick test
        taken_s = json.loads(MUTMUT_STATS.read_text())["duration_by_test"]
        items.sort(key=lambda item: taken_s.get(item.nodeid, 0.0))


def _group_of(item: pytest.Item) -> str:
    """The tests that share one worker with this one; empty: it runs on any."""
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker("spark"):
        return "spark" if "spark" in fixtures else "spark programs"
    if "whole_year" in fixtures:
        return "flights"
    return "house" if item.path.parent == HOUSE else ""


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.getoption("loadgroup", default=False):
        return
    alone = [
        item.nodeid
        for item in session.items
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
    ]
    assert not alone, f"pytest-xdist does not keep groups together: {alone[:3]}"
