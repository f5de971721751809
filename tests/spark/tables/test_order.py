"""Which columns an audit of the order reads, what it counts as a fault, and wrong calls of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cometmq.cli.main import run as command_line
from cometmq.spark.tables.order import _columns_in
from cometmq.spark.tables.stored_order import KeyOrder, QueueOrder, StoredOrder

QUEUE = QueueOrder(
    topic="T", broker="b", queue_id=0, begin=3, end=9, rows=6, holes=0, repeats=0, without_key=1
)
KEYS = KeyOrder(
    topic="T", keys=2, scattered=0, numbered=5, unnumbered=0, late=0, resent=4, left_out=7
)


@pytest.mark.parametrize(
    ("texts", "more"),
    [
        (("sharding_key",), ["sharding_key"]),
        (("properties.seq",), ["properties"]),
        (("get_json_object(string(BODY), '$.keys')",), ["keys", "body"]),
        (("`tags`", "coalesce(reconsume_times,queue_offset)"), ["tags", "reconsume_times"]),
        (("value.number",), []),
    ],
)
def test_only_columns_that_an_expression_may_name_are_read(
    texts: tuple[str, ...], more: list[str]
) -> None:
    assert [*_columns_in(*texts)] == ["topic", "broker", "queue_id", "queue_offset", *more]


def test_what_is_sent_again_or_left_out_is_counted_and_is_no_fault() -> None:
    order = StoredOrder((QUEUE,), (KEYS,))
    assert order.is_in_order
    said = order.as_json()
    assert (said["is_in_order"], said["keys"][0]["resent"], said["examples"]) == (True, 4, [])


@pytest.mark.parametrize("fault", ["holes", "repeats", "scattered", "late"])
def test_each_kind_of_fault_is_one(fault: str) -> None:
    if fault in ("holes", "repeats"):
        order = StoredOrder((replace(QUEUE, **{fault: 2}),), (KEYS,))
    else:
        order = StoredOrder((QUEUE,), (replace(KEYS, **{fault: 2}),))
    assert (order.faults, order.is_in_order) == (2, False)


@pytest.mark.parametrize(
    "arguments", [[], ["orders", "--archive", "var/orders"], ["orders", "--iceberg", "lake"]]
)
def test_topics_or_an_archive_must_be_named_and_not_both(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["pipeline", "order", *arguments]) == 2
    assert "archive" in capsys.readouterr().err
