"""Settings of consumers: names in place of values, and values of the wrong kind."""

import pytest

from cometmq import (
    ConsumeFrom,
    Producer,
    PushConsumer,
)
from cometmq.client.consumer.consumer_options import allocation_of, consume_from_of
from cometmq.errors import SettingsError
from cometmq.rules.allocate import STRATEGIES

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"consume_from": "beginning"},
        {"consume_from": 1},
        {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": "2013"},
        {"consume_threads": "20"},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"suspend_ms": "1000"},
        {"suspend_ms": 9},
        {"suspend_ms": 30_001},
        {"max_attempts": "3"},
        {"orderly": "no"},
        {"flow": {"count": 1}},
        {"flow": 0},
        {"allocate": "EVEN"},
        {"allocate": None},
        {"persist_s": -1},
        {"rebalance_s": None},
        {"heartbeat_s": 0},
        {"lock_renew_s": "x"},
        {"stop_timeout_s": float("nan")},
        {"instance_name": 5},
        {"namesrv": 9876},
        {"namesrv": [9876]},
        {"namesrv": "localhost:99999"},
    ],
    ids=str,
)
def test_an_argument_of_the_wrong_kind_is_named_at_once(wrong):
    name = next(iter(wrong)) if "consume_timestamp_ms" not in wrong else "consume_timestamp_ms"
    name = "name server" if wrong.get("namesrv") == "localhost:99999" else name
    with pytest.raises(SettingsError, match=name) as caught:
        PushConsumer("group", **{"namesrv": NOBODY} | wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("group", [None, 5, b"group"])
def test_a_group_is_a_text(group):
    for client in (PushConsumer, Producer):
        with pytest.raises(SettingsError, match="group"):
            client(group, namesrv=NOBODY)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("first", ConsumeFrom.FIRST),
        ("Last", ConsumeFrom.LAST),
        ("CONSUME_FROM_FIRST_OFFSET", ConsumeFrom.FIRST),
        ("timestamp", ConsumeFrom.TIMESTAMP),
        (ConsumeFrom.LAST, ConsumeFrom.LAST),
    ],
)
def test_where_a_group_begins_may_be_said_by_name(name, meant):
    assert consume_from_of(name) is meant
    PushConsumer("group", namesrv=NOBODY, consume_from=name, consume_timestamp_ms=0)


def test_a_strategy_may_be_said_by_rocketmqs_name():
    for name, function in STRATEGIES.items():
        assert (
            allocation_of(name)
            is allocation_of(name.lower())
            is allocation_of(function)
            is function
        )
        PushConsumer("group", namesrv=NOBODY, allocate=name)
