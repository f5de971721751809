"""Messages, queues and results: what they say of themselves, copied and pickled, too."""

import copy
import pickle
import re

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.message import MessageExt
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


def test_the_topics_of_a_group_are_known_by_their_prefix():
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


pieces = st.sampled_from(
    [
        b"\x01",
        b"\x02",
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"__SHARDINGKEY",
        b"a b",
        b"\xe2\x82",
        b"\xc3\xa9",
        b"X",
    ]
)


def received(raw):
    host = b"\x7f\0\0\1\0\0\x2a\x9f"
    return MessageExt("t", 3, 7, b"b", raw, 0, 0, 4, 99, 17, host, 19, host, 0, "b0")


@given(st.lists(pieces, max_size=14).map(b"".join))
def test_a_property_read_alone_is_what_it_is_among_all_of_them(raw):
    alone, pairs = received(raw), received(raw).properties
    assert alone.tags == pairs.get("TAGS")
    assert alone.sharding_key == pairs.get("__SHARDINGKEY")
    assert alone.keys == pairs.get("KEYS", "").split()
    assert alone.msg_id == pairs.get("UNIQ_KEY") or alone.msg_id == alone.offset_msg_id
    assert alone.properties == pairs
    assert (alone.tags, alone.keys) == (pairs.get("TAGS"), pairs.get("KEYS", "").split())


def test_a_message_can_be_changed_copied_and_sent_to_another_process():
    message = received(b"TAGS\x01a\x02")
    message.born_ms, message.where = 18, message.where
    message.properties["TAGS"] = "b"
    for one in (message, copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert (one.born_ms, one.store_ms, one.sys_flag, one.phy_offset) == (18, 19, 4, 99)
        assert (one.tags, one.topic, one.body, one.born_host) == ("b", "t", b"b", one.store_host)
