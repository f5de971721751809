"""`cometmq why` against a real group, once and as a live view, and the same from a member."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq import Message, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt


def ignore(_messages: Sequence[MessageExt]) -> None:
    """Handle nothing."""


def test_a_group_is_looked_at_once_and_again_and_again(namesrv: str) -> None:
    cometmq = Commands(namesrv)
    cometmq("topic", "create", "invoices", "--queues", "2")
    consumer = PushConsumer("billing", namesrv=namesrv, order="queue", consume_from="first")
    consumer.subscribe("invoices", "*", ignore)
    with Producer("clerk", namesrv=namesrv) as producer, consumer:
        until(lambda: len(consumer.assigned) >= 2)
        consumer.pause()
        for number in range(20):
            producer.send(Message("invoices", b"x", sharding_key=f"k{number}"))
        once = cometmq("why", "billing", "--seconds", "0.2", "--json").json
        assert (once["causes"][0]["name"], once["lag"] > 0) == ("paused consumer", True)
        assert consumer.why(0.2).cause.name == "paused consumer"
        shown = cometmq("why", "billing", "--seconds", "0.2", "--watch", "--times", "2").out
        assert shown.count("bound by: paused consumer") == 2
        lines = cometmq(
            "why", "billing", "--seconds", "0.2", "--watch", "--times", "3", "--json"
        ).out.splitlines()
        assert [json.loads(line)["causes"][0]["name"] for line in lines] == ["paused consumer"] * 3
