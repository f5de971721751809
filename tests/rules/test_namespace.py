"""Names inside an instance and outside of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.namespace import instance_of, with_namespace, without_namespace

INSTANCE = "MQ_INST_123_abc"
names = st.from_regex(r"(%RETRY%|%DLQ%|)[a-zA-Z0-9_-]{1,20}", fullmatch=True)


@given(names)
def test_a_namespace_is_added_once_and_removed_again(name):
    inside = with_namespace(INSTANCE, name)
    assert without_namespace(INSTANCE, inside) == name
    assert with_namespace(INSTANCE, inside) == inside
    assert with_namespace(None, name) == name == without_namespace(None, name)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("orders", "MQ_INST_123_abc%orders"),
        ("%RETRY%group", "%RETRY%MQ_INST_123_abc%group"),
        ("%DLQ%group", "%DLQ%MQ_INST_123_abc%group"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names_inside_an_instance_are_those_of_rocketmq(name, inside):
    assert with_namespace(INSTANCE, name) == inside


@pytest.mark.parametrize(
    ("addr", "instance"),
    [
        ("MQ_INST_123_abc.mq-internet-access.mq-internet.aliyuncs.com:80", INSTANCE),
        ("http://MQ_INST_123_abc.cn-hangzhou.mq-internal.aliyuncs.com:8080", INSTANCE),
        ("127.0.0.1:9876", None),
    ],
)
def test_the_instance_is_read_from_a_vendors_address(addr, instance):
    assert instance_of(addr) == instance
