"""The commands that look at dead letters, against a running broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq import Message, OnFailure, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


def test_letters_are_chosen_by_key_message_reason_and_time(namesrv: str, tmp_path: Path) -> None:
    cometmq = Commands(namesrv)
    cometmq("topic", "create", "chosen-letters", "--queues", "1")

    def fail(messages: Sequence[MessageExt]) -> None:
        raise ValueError("no account" if messages[0].body < b"5" else "no amount")

    group = "choosers"
    consumer = PushConsumer(group, namesrv=namesrv, consume_from="first")
    consumer.subscribe("chosen-letters", "*", fail, on_failure=OnFailure.dead_letter())
    with Producer("chooser", namesrv=namesrv) as producer, consumer:
        sent = [
            producer.send(
                Message(
                    "chosen-letters",
                    b"%d" % n,
                    keys=f"k{n}",
                    sharding_key=("even", "odd")[n % 2],
                )
            )
            for n in range(10)
        ]
        until(lambda: {"group": group, "letters": 10} in cometmq("dlq", "list", "--json").json)

    def bodies(*options: str, command: str = "show") -> list[str]:
        if command == "show":
            found = cometmq("dlq", "show", group, "--json", *options).json
        else:
            file = tmp_path / "letters.jsonl"
            done = cometmq("dlq", "export", group, str(file), *options)
            assert done.code == 0, done.err
            found = [json.loads(line) for line in file.read_text().splitlines()]
        return sorted(one["body"] for one in found)

    stored = max(one["stored_ms"] for one in cometmq("dlq", "show", group, "--json").json)
    since = datetime.fromtimestamp(stored / 1000 + 1, UTC).isoformat()
    for command in ("show", "export"):
        assert bodies("--key", "odd", command=command) == ["1", "3", "5", "7", "9"]
        assert bodies("--key", "k4", command=command) == ["4"]
        assert bodies("--message", sent[7].msg_id, command=command) == ["7"]
        assert bodies("--reason", "AMOUNT", command=command) == ["5", "6", "7", "8", "9"]
        assert bodies("--key", "odd", "--reason", "amount", command=command) == ["5", "7", "9"]
        assert bodies("--since", since, command=command) == []
        assert len(bodies("--until", since, command=command)) == 10
    assert len(bodies("--count", "2", "--key", "even")) == 2
    assert bodies("--count", "1", "--oldest", "--reason", "amount") != bodies(
        "--count", "1", "--reason", "amount"
    )
    assert cometmq("dlq", "drop", group, "--key", "k4", "--yes").code == 0
    assert bodies("--key", "k4") == ["4"], "show has all that are stored"
    assert bodies("--key", "k4", command="export") == [], "export those that are not done"
