"""The commands about parked keys, against a running member of the group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq import Message, OnFailure, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cometmq import MessageExt


def test_parked_keys_are_listed_shown_and_released(namesrv: str, tmp_path: Path) -> None:
    cometmq, seen, bad = Commands(namesrv), [], {b"1"}
    cometmq("topic", "create", "flown", "--queues", "1")

    def handle(messages: Sequence[MessageExt]) -> None:
        if messages[0].body in bad:
            raise ValueError("no time in it")
        seen.append(messages[0].body)

    consumer = PushConsumer(
        "loggers", namesrv=namesrv, consume_from="first", order="key", state_dir=tmp_path
    )
    consumer.subscribe("flown", "*", handle, on_failure=OnFailure.park())
    with Producer("clerk", namesrv=namesrv) as producer, consumer:
        for body in (b"0", b"1", b"2"):
            producer.send(Message("flown", body, sharding_key="N101"))
        until(lambda: len(cometmq("parked", "show", "loggers", "--json").json) == 2)
        (key,) = cometmq("parked", "list", "loggers", "--json").json
        assert (key["key"], key["messages"], key["attempts"]) == ("N101", 2, 1)
        assert "N101" in cometmq("parked", "list", "loggers", "--key", "N101").out
        shown = cometmq("parked", "show", "loggers", "--json").json
        assert [one["body"] for one in shown] == ["1", "2"]
        plan = cometmq("parked", "release", "loggers", "--json").json
        assert plan == {"asked": 2, "done": 0, "dry_run": True, "refused": []}
        failed = cometmq("parked", "release", "loggers", "--yes")
        assert (failed.code, "it failed again" in failed.out) == (1, True)
        bad.clear()
        done = cometmq("parked", "release", "loggers", "--key", "N101", "--yes")
        assert (done.code, "2 of 2 messages released" in done.out) == (0, True)
    assert seen == [b"0", b"1", b"2"]


def test_dead_letters_are_exported_and_sent_to_another_topic(namesrv: str, tmp_path: Path) -> None:
    cometmq = Commands(namesrv)
    for topic in ("lost", "found"):
        cometmq("topic", "create", topic, "--queues", "1")

    def fail(messages: Sequence[MessageExt]) -> None:
        raise ValueError(f"{messages[0].body!r} is nothing")

    consumer = PushConsumer("losers", namesrv=namesrv, consume_from="first", order="queue")
    consumer.subscribe("lost", "*", fail, on_failure=OnFailure.dead_letter())
    with Producer("clerk", namesrv=namesrv) as producer, consumer:
        for body in (b"1", b"2"):
            producer.send(Message("lost", body, sharding_key="k"))
        until(lambda: {"group": "losers", "letters": 2} in cometmq("dlq", "list", "--json").json)
    file = tmp_path / "letters"
    cometmq("dlq", "export", "losers", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["body"], one["origin_topic"]) for one in lines] == [("1", "lost"), ("2", "lost")]
    assert "2 messages would be sent" in cometmq("dlq", "redrive", "losers", "--to", "found").out
    sent = cometmq("dlq", "redrive", "losers", "--to", "found", "--rate", "100", "--yes", "--json")
    assert sent.json == {"asked": 2, "done": 2, "dry_run": False, "refused": []}
    assert cometmq("dlq", "drop", "losers", "--yes", "--json").json["asked"] == 0
    assert [one["body"] for one in cometmq("topic", "peek", "found", "--json").json] == ["1", "2"]


def test_a_group_that_nobody_knows_is_an_error_with_the_nearest_name(namesrv: str) -> None:
    cometmq = Commands(namesrv)
    cometmq("group", "create", "painters")
    assert cometmq("parked", "list", "painters", "--json").json == []
    for words in (
        ("parked", "list"),
        ("parked", "show"),
        ("parked", "release"),
        ("parked", "redrive"),
        ("parked", "drop"),
        ("dlq", "show"),
    ):
        refused = cometmq(*words, "paintres")
        assert refused.code == 1
        assert "no broker knows the group paintres; did you mean painters?" in refused.err
    assert "has no dead letters" in cometmq("dlq", "show", "painters").err
