"""Members that want different things say so, each of its neighbour, once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import PushConsumer
from cometmq.client.consumer import member_comparison

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.cluster import LocalCluster

LOG = "cometmq.client.consumer.member_comparison"


def member(
    cluster: LocalCluster, group: str, topic: str, expression: str = "*", *, orderly: bool = False
) -> PushConsumer:
    consumer = PushConsumer(group, namesrv=cluster.namesrv, orderly=orderly, rebalance_s=0.2)
    consumer.subscribe(topic, expression, lambda _messages: None)
    return consumer


@pytest.mark.parametrize(
    ("mine", "theirs", "do_differ"),
    [
        ({"expression": "X"}, {"expression": "Y || Z"}, True),
        ({"orderly": True}, {}, True),
        ({"expression": "X || Y"}, {"expression": "Y || X"}, False),
    ],
)
def test_members_that_differ_name_each_other(
    cluster: LocalCluster,
    make_topic: Callable[[LocalCluster, int], str],
    group: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mine: dict[str, object],
    theirs: dict[str, object],
    do_differ: bool,
) -> None:
    topic = make_topic(cluster, 4)
    caplog.set_level(logging.DEBUG, LOG)
    compared: list[str] = []
    difference = member_comparison.difference

    def counting(*members: Any) -> str:
        found = difference(*members)
        compared.append(found)
        return found

    monkeypatch.setattr(member_comparison, "difference", counting)
    one, other = member(cluster, group, topic, **mine), member(cluster, group, topic, **theirs)
    with one, other:
        until(lambda: len(one.assigned) + len(other.assigned) >= 4 and one.assigned)
        ids = [each._inner._engine.client_id for each in (one, other)]

        def heard() -> list[str]:
            found = [r.getMessage() for r in caplog.records if r.name == LOG]
            return [text for text in found if f"the group {group} differ" in text]

        until(lambda: len(compared) >= 2)
        if not do_differ:
            assert heard() == []
            assert compared == ["", ""]
            return
        until(lambda: len(heard()) >= 2)
        for text in heard():
            assert all(each in text for each in ids)
    assert len(heard()) == 2, "each member says it once"
    if "orderly" in mine:
        assert all(" in order" in text and " concurrently" in text for text in heard())
    else:
        assert all("'X'" in text and "'Y || Z'" in text for text in heard())
