"""Subscriptions: expressions, handlers, and what is refused."""

import pytest

from cometmq import (
    MessageSelector,
    PushConsumer,
)
from cometmq.client.consumer.subscriptions import Subscriptions
from cometmq.errors import ClientError

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("expression", "handler"),
    [
        (None, print),
        (["A"], print),
        ("*", 5),
        (print, None),
        ("a > 3", print),
        ("a=3", print),
        ("A | B", print),
        ("A|B", print),
        ("A B", print),
        ("A || in ('x')", print),
        ("PAID*", print),
        ("* || A", print),
        ("||", print),
    ],
)
def test_a_subscription_needs_tags_and_a_function(expression, handler):
    with pytest.raises(ClientError, match="subscribe to T") as caught:
        PushConsumer("group", namesrv=NOBODY).subscribe("T", expression, handler)
    assert "'*'" in str(caught.value) or handler == 5


@pytest.mark.parametrize("expression", ["*", "", " * ", "A", "A||B", " A || B-2 || ü.3 ||"])
def test_tags_and_nothing_and_all_are_subscribed(expression):
    PushConsumer("group", namesrv=NOBODY).subscribe("T", expression, print)


def test_subscriptions_carry_tags_and_their_codes_and_the_retry_topic(caplog):
    table = Subscriptions("g")
    with pytest.raises(ClientError):
        table.freeze(1)
    table.add("T", MessageSelector.by_tag("TagA || TagB"), print)
    table.add("All", MessageSelector(), print)
    table.add("Sql", MessageSelector.by_sql("a > 1"), print)
    table.freeze(77)
    assert table.topics == ["T", "All", "Sql", "%RETRY%g"]
    first, second, third, retry = table.data()
    assert (first.sub_string, first.code_set) == ("TagA || TagB", {2598919, 2598920})
    assert (second.sub_string, second.tags_set) == ("*", frozenset())
    assert (retry.topic, {one.sub_version for one in table.data()}) == ("%RETRY%g", {77})
    assert (third.expression_type, third.sub_string) == ("SQL92", "a > 1")
    assert table.sql_subscriptions == [third]
    assert table.filter_of("T").tags == {b"TagA", b"TagB"}
    assert table.filter_of("Sql").tags == frozenset()
    assert Subscriptions("g", broadcasting=True).topics == []
    for _ in range(2):
        assert table.subscription_of("no longer known").handler is print
    assert caplog.text.count("no longer known") == 1
