"""Limits of what one consumer keeps in memory."""

from cometmq.rules.queues.flow_control import FlowLimits


def test_limits_of_a_topic_are_shared_out_among_its_queues():
    limits = FlowLimits(count=1000, topic_count=100, topic_size_mib=9)
    one = limits.of_one(8)
    assert (one.count, one.size_mib, one.span) == (12, 1, 2000)
    assert limits.of_one(1_000).count == 1
    assert limits.is_shared
    assert not FlowLimits().is_shared
