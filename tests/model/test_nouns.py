"""The few things that nouns say about themselves."""

import re

from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData
from cometmq.model.topic import (
    NAME_PATTERN,
    SEND_FORBIDDEN_TOPICS,
    SYSTEM_TOPICS,
    DataVersion,
    dlq_topic_of,
    is_dlq_topic,
    is_retry_topic,
    retry_topic_of,
)


def test_queues_sort_by_topic_then_broker_then_number():
    queues = [MessageQueue("b", "x", 0), MessageQueue("a", "y", 2), MessageQueue("a", "y", 10)]
    queues.append(MessageQueue("a", "x", 99))
    assert sorted(queues) == [queues[3], queues[1], queues[2], queues[0]]
    assert str(queues[1]) == "a@y/2"


def test_the_topics_of_a_group_are_told_by_their_prefix():
    assert (retry_topic_of("G"), dlq_topic_of("G")) == ("%RETRY%G", "%DLQ%G")
    assert is_retry_topic("%RETRY%G")
    assert not is_retry_topic("%DLQ%G")
    assert is_dlq_topic("%DLQ%G")
    assert not is_dlq_topic("G")


def test_system_topics_have_names_that_the_rules_allow():
    assert all(re.fullmatch(NAME_PATTERN, topic) for topic in SYSTEM_TOPICS)
    assert SEND_FORBIDDEN_TOPICS < SYSTEM_TOPICS


def test_a_broker_without_id_0_has_no_master():
    assert BrokerData(cluster="c", broker_name="b", broker_addrs={0: "m", 1: "s"}).master == "m"
    assert BrokerData(cluster="c", broker_name="b", broker_addrs={1: "s"}).master is None


def test_the_next_version_differs_and_says_when():
    version = DataVersion(state_version=2, timestamp=5, counter=7)
    assert version.next(9) == DataVersion(state_version=2, timestamp=9, counter=8)
