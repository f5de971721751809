"""Limits of what one consumer keeps in memory."""

import pytest

from cometmq.rules.queues.flow_control import FlowLimits, full_reason, limit_reached


def test_limits_of_a_topic_are_shared_out_among_its_queues():
    limits = FlowLimits(count=1000, topic_count=100, topic_size_mib=9)
    one = limits.of_one(8)
    assert (one.count, one.size_mib, one.span) == (12, 1, 2000)
    assert limits.of_one(1_000).count == 1
    assert limits.is_shared
    assert not FlowLimits().is_shared


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("count", [0, 10, 11])
@pytest.mark.parametrize("size_bytes", [0, 1_048_576, 1_048_577])
@pytest.mark.parametrize("span", [0, 20, 21])
def test_a_reason_is_given_where_a_queue_is_full(count, size_bytes, span, orderly):
    held, limits = (count, size_bytes, span), FlowLimits(count=10, size_mib=1, span=20)
    reason = full_reason(limits, *held, orderly=orderly)
    assert bool(reason) is bool(limit_reached(limits, *held, orderly=orderly))
    assert ("flow.count is 10" in reason) is (count > 10)
