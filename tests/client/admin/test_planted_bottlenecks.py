"""`cometmq why` judged by what was planted: real brokers and consumers, in virtual time.

All causes, pairs and changes run with `make why`; a few causes always. The figures are in
bench/results/why.txt.
"""

from __future__ import annotations

import logging
import sys

import pytest

from client.planted_bottlenecks import GAINS, PAIRS, PLANTS
from client.slow_groups import Shape, rate_of, why

NAMED_FIRST, IN_RANGE = 0.9, 0.8


@pytest.fixture(autouse=True)
def quiet():
    """Planted failures would fill the log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def show(capsys: pytest.CaptureFixture[str], *lines: str) -> None:
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["few queues", "few threads", "held lock", "slow handler"])
def test_a_planted_cause_is_named_first(name: str) -> None:
    assert why(PLANTS[name](Shape())).cause.name == name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_planted_cause_is_named_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(name, why(plant(Shape())).cause.name) for name, plant in PLANTS.items()]
    wrong = [f"  {name}: {found}" for name, found in rows if found != name]
    right = len(rows) - len(wrong)
    show(capsys, f"alone: {right} of {len(rows)} are named first", *wrong)
    assert right >= NAMED_FIRST * len(rows)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_two_planted_causes_one_is_named_first(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, both = [], 0
    for one, other in PAIRS:
        causes = [cause.name for cause in why(PLANTS[other](PLANTS[one](Shape()))).causes]
        both += {one, other} <= {*causes}
        if causes[0] not in (one, other):
            wrong.append(f"  {one} + {other}: {', '.join(causes)}")
    right = len(PAIRS) - len(wrong)
    first = f"pairs: in {right} of {len(PAIRS)} one of the two is named first"
    show(capsys, f"{first}, in {both} both are named", *wrong)
    assert right >= NAMED_FIRST * len(PAIRS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_change_brings_what_was_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    inside, rows = 0, []
    causes = {cause for cause, _, _ in GAINS}
    found = {cause: why(PLANTS[cause](Shape())).changes for cause in causes}
    for cause, name, change in GAINS:
        shape = PLANTS[cause](Shape())
        predicted = next(one for one in found[cause] if one.name == name)
        assert predicted.high <= 2 * predicted.low
        made = rate_of(change(shape))
        is_inside = predicted.low <= made <= predicted.high
        inside += is_inside
        rows.append(
            f"  {cause:24} {name:10} {predicted.low:6.0f} to {predicted.high:6.0f}, "
            f"really {made:6.0f}{'' if is_inside else '  outside'}"
        )
    show(capsys, f"changes: {inside} of {len(GAINS)} lie in the range", *rows)
    assert inside >= IN_RANGE * len(GAINS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_members_on_sixteen_queues_then_on_a_hundred_then_by_key() -> None:
    """One group, looked at again after each change."""
    shape = Shape(order="queue", queues=16, members=10, threads=10, handler_s=0.4)
    found = why(shape)
    assert found.cause.name == "few queues"
    by_key = next(one for one in found.changes if one.name == "key lanes")
    assert found.changes[0] == by_key
    assert why(shape.also(queues=100)).cause.name == "few threads"
    again = why(shape.also(order="key"))
    assert by_key.low <= again.rate <= by_key.high
    assert again.cause.name == "few threads"
