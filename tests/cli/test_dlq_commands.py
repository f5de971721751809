"""The commands that look at dead letters, against a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq import Message, OnFailure, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt


def test_dead_letters_are_listed_and_shown_with_their_reasons(namesrv: str) -> None:
    cometmq = Commands(namesrv)
    cometmq("topic", "create", "doomed", "--queues", "1")

    def fail(messages: Sequence[MessageExt]) -> None:
        raise ValueError(f"no such account in {messages[0].body!r}")

    consumer = PushConsumer("givers-up", namesrv=namesrv, consume_from="first")
    consumer.subscribe("doomed", "*", fail, on_failure=OnFailure.dead_letter())
    with Producer("clerk", namesrv=namesrv) as producer, consumer:
        sent = producer.send(Message("doomed", b"x", keys="k"))
        until(lambda: {"group": "givers-up", "letters": 1} in cometmq("dlq", "list", "--json").json)
    assert ["givers-up", "1"] in cometmq("dlq", "list").rows
    (letter,) = cometmq("dlq", "show", "givers-up", "--json").json
    assert (letter["origin_msg_id"], letter["origin_topic"]) == (sent.msg_id, "doomed")
    assert "no such account" in letter["reason"]
    assert (letter["body"], letter["keys"]) == ("x", ["k"])
    assert sent.msg_id in cometmq("dlq", "show", "givers-up").out
    done = cometmq("dlq", "show", "giver-up")
    assert (done.code, "did you mean givers-up?" in done.err) == (1, True)
