"""What becomes of a failure: a table, and refusals."""

import pytest

from cometmq.errors import SettingsError
from cometmq.rules.failures.failure_policy import (
    BLOCK,
    FailureAction,
    FailurePolicy,
    OnFailure,
    decide,
    policies,
    policy_of,
)


def calls(policy, *, most=100):
    """How often a handler that always fails is called, and the end."""
    for failures in range(1, most):
        verdict = decide(policy, failures, 1000, is_outage=False)
        if verdict.action is not FailureAction.NONE:
            return failures, verdict.action
    return most, FailureAction.NONE


def put(message, failure):
    """A sink."""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OnFailure.block(), (100, FailureAction.NONE)),
        (OnFailure.retry(3), (4, FailureAction.DEAD_LETTER)),
        (OnFailure.retry(0), (1, FailureAction.DEAD_LETTER)),
        (OnFailure.retry(3, OnFailure.skip()), (4, FailureAction.SKIP)),
        (OnFailure.retry(2, OnFailure.store(put, after=3)), (5, FailureAction.STORE)),
        (OnFailure.dead_letter(), (1, FailureAction.DEAD_LETTER)),
        (OnFailure.skip(after=2), (2, FailureAction.SKIP)),
        (OnFailure.stop(), (1, FailureAction.STOP)),
        (OnFailure.store(put, after=5), (5, FailureAction.STORE)),
    ],
)
def test_a_message_is_given_up_after_exactly_so_many_calls(policy, expected):
    assert calls(policy) == expected


def test_in_an_outage_no_message_is_given_up():
    assert decide(OnFailure.skip(), 7, 1000, is_outage=True).action is FailureAction.NONE


def test_the_policy_is_that_of_the_nearest_class_of_the_error():
    skip, stop, again = OnFailure.skip(), OnFailure.stop(), OnFailure.retry(2)
    known = policies({LookupError: skip, OSError: stop, Exception: again})
    assert policy_of(known, KeyError, BLOCK) is skip
    assert policy_of(known, ConnectionResetError, BLOCK) is stop
    assert policy_of(known, ValueError, BLOCK) is again
    assert policy_of(known, KeyboardInterrupt, BLOCK) is BLOCK
    assert policy_of(policies(skip), KeyboardInterrupt, BLOCK) is skip


def test_pauses_double_up_to_their_bound_and_stay_within_ten_ms_and_thirty_s():
    policy = OnFailure.block(pause_ms=100, pause_most_ms=500)
    assert [policy.pause_after(failures, 1000) for failures in (1, 2, 3, 4, 99)] == [
        100,
        200,
        400,
        500,
        500,
    ]
    assert BLOCK.pause_after(9, 1000) == 1000
    assert BLOCK.pause_after(1, 1) == 10
    assert OnFailure.retry(3, OnFailure.skip(), pause_ms=50).pause_after(2, 1000) == 100


@pytest.mark.parametrize(
    "make",
    [
        lambda: OnFailure.retry(-1),
        lambda: OnFailure.retry(True),
        lambda: OnFailure.retry(1, then="skip"),
        lambda: OnFailure.skip(after=0),
        lambda: OnFailure.store("table"),
        lambda: OnFailure.block(pause_ms=1),
        lambda: FailurePolicy(action=FailureAction.STORE),
        lambda: policies("retry"),
        lambda: policies({"ValueError": BLOCK}),
        lambda: policies({ValueError: "skip"}),
        lambda: policies({int: BLOCK}),
        lambda: policies({ValueError: OnFailure.retry(2, OnFailure.divert())}),
    ],
)
def test_wrong_arguments_of_a_policy_are_refused_with_a_sentence(make):
    with pytest.raises(SettingsError, match=r"must|which"):
        make()


@pytest.mark.parametrize(
    ("policy", "most_ms"),
    [
        (OnFailure.dead_letter(), 0),
        (OnFailure.retry(1, pause_ms=10), 10),
        (OnFailure.retry(3, pause_ms=10), 70),
        (OnFailure.retry(4, pause_ms=10, pause_most_ms=20), 70),
        (OnFailure.retry(2), 2000),
    ],
)
def test_the_pauses_of_one_message_are_bounded_in_sum(policy, most_ms):
    assert policy.pauses_within(most_ms, 1000)
    assert most_ms == 0 or not policy.pauses_within(most_ms - 1, 1000)
    assert not BLOCK.pauses_within(10**9, 10)


def test_the_old_names_of_a_policy_work_with_a_warning():
    policy = OnFailure.retry(2, pause_ms=20)
    with pytest.warns(DeprecationWarning, match="action"):
        assert policy.ending is policy.action
    with pytest.warns(DeprecationWarning, match="pause_after"):
        assert policy.rest_ms(1, 1000) == policy.pause_after(1, 1000)
