"""The commands about consumer groups, against a running broker."""

from __future__ import annotations

import io
import json
from itertools import count
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Message, MessageQueue, Producer, PushConsumer

if TYPE_CHECKING:
    from cli.in_process import Commands

_numbers = count()


@pytest.fixture
def group(cometmq: Commands) -> str:
    name = f"payers-{next(_numbers)}"
    assert cometmq("group", "create", name, "--retry-max-times", "5").out == f"{name}: created\n"
    return name


@pytest.fixture
def topic(admin: Admin, namesrv: str, group: str) -> str:
    """A topic with three messages in queue 0 and one in queue 1."""
    name = f"bills-{group}"
    admin.create_topic(name, 2)
    with Producer("clerk", namesrv=namesrv) as producer:
        for queue_id in (0, 0, 0, 1):
            producer.send(Message(name, b"x"), queue=MessageQueue(name, _broker(admin), queue_id))
    return name


def _broker(admin: Admin) -> str:
    return next(iter(admin.clusters().broker_addr_table))


def test_the_lag_of_a_group_is_shown_by_queue(
    cometmq: Commands, admin: Admin, group: str, topic: str
) -> None:
    broker = _broker(admin)
    admin.set_group_offsets(group, {MessageQueue(topic, broker, 0): 1})
    head, first, second, total = cometmq("group", "lag", group).rows
    assert head[:7] == ["topic", "broker", "queue", "first", "end", "committed", "lag"]
    assert first[:8] == [topic, broker, "0", "0", "3", "1", "2", "0"]
    assert second[:8] == [topic, broker, "1", "0", "1", "-", "-", "0"]
    assert total == ["all", "2"]
    found = cometmq("group", "lag", group, "--topic", topic, "--json").json
    assert (found["group"], found["lag"]) == (group, 2)
    assert found["queues"][0] == {
        "topic": topic, "broker": broker, "queue_id": 0, "first_offset": 0, "end_offset": 3,
        "committed": 1, "lag": 2, "in_flight": 0, "owner": None,
        "last_consumed_ms": found["queues"][0]["last_consumed_ms"],
    }  # fmt: skip
    looks = cometmq("group", "lag", group, "--watch", "--times", "2", "--every", "0.01", "--json")
    assert [json.loads(line)["lag"] for line in looks.out.splitlines()] == [2, 2]
    everyone = {one["group"]: one for one in cometmq("group", "lag", "--all", "--json").json}
    assert everyone[group] == {"group": group, "members": 0, "model": None, "topics": 1, "lag": 2}
    assert [group, "0", "-", "1", "2"] in cometmq("group", "lag", "--all").rows


def test_a_group_is_shown_changed_and_deleted(
    cometmq: Commands, admin: Admin, group: str, topic: str
) -> None:
    assert group in cometmq("group", "list").out.splitlines()
    assert group in cometmq("group", "list", "--json").json
    assert cometmq("group", "alter", group, "--orderly").code == 0
    assert cometmq("group", "alter", group).code == 2
    admin.set_group_offsets(group, {MessageQueue(topic, _broker(admin), 0): 0})
    shown = cometmq("group", "show", group)
    assert shown.out.startswith(f"{group}: 0 members\nat ")
    assert "consume_message_orderly True, retry_max_times 5" in shown.out
    assert shown.rows[-1] == [topic, "2", "3"]
    facts = cometmq("group", "show", group, "--json").json
    assert facts["settings"][_broker(admin)]["retry_max_times"] == 5
    assert facts["topics"] == [{"topic": topic, "queues": 2, "lag": 3}]
    refused = cometmq("group", "delete", group)
    assert (refused.code, "--yes does it; nothing was changed" in refused.err) == (2, True)
    assert group in cometmq("group", "list").out.splitlines()
    assert cometmq("group", "delete", group, "--yes").code == 0
    assert group not in cometmq("group", "list").out.splitlines()


def test_an_unknown_group_or_topic_is_one_sentence_with_the_nearest_name(
    cometmq: Commands, group: str, topic: str
) -> None:
    for words in (
        *(("lag",), ("members",), ("running",), ("show",)),
        *(("delete", "--yes"), ("alter", "--orderly")),
    ):  # fmt: skip
        done = cometmq("group", words[0], f"{group}s", *words[1:])
        assert (done.code, done.out) == (1, "")
        assert done.err == (f"cometmq: no broker knows the group {group}s; did you mean {group}?\n")
    for words in (("reset", group, f"{topic}s", "--to", "latest"), ("skip", group, f"{topic}s")):
        done = cometmq("group", *words, "--yes")
        assert (done.code, f"did you mean {topic}?" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("to", "after"),
    [("latest", [3, 1]), ("earliest", [0, 0]), ("2", [2, 1]), ("1h", [0, 0]), ("now", [3, 1])],
)
def test_a_group_is_reset(
    cometmq: Commands, admin: Admin, group: str, topic: str, to: str, after: list[int]
) -> None:
    dry = cometmq("group", "reset", group, topic, "--to", to, "--dry-run", "--json").json
    assert (dry["moved"], [one["after"] for one in dry["queues"]]) == (False, after)
    refused = cometmq("group", "reset", group, topic, "--to", to)
    assert (refused.code, refused.out.count("broker")) == (2, 1 + 2 * ("broker" in _broker(admin)))
    assert [one.committed for one in admin.group_lag(group, topic)] == [None, None]
    done = cometmq("group", "reset", group, topic, "--to", to, "--yes", "--json").json
    assert (done["moved"], [one["before"] for one in done["queues"]]) == (True, [None, None])
    assert [one.committed for one in admin.group_lag(group, topic)] == after


def test_a_group_is_moved_in_all_its_topics(
    cometmq: Commands, admin: Admin, group: str, topic: str
) -> None:
    refused = cometmq("group", "skip", group, "--yes")
    assert (refused.code, "has no offset in any topic: name a topic" in refused.err) == (1, True)
    other = f"{topic}-too"
    admin.create_topic(other, 1)
    queues = {MessageQueue(topic, _broker(admin), 0): 2, MessageQueue(other, _broker(admin), 0): 0}
    admin.set_group_offsets(group, queues)
    done = cometmq("group", "skip", group, "--yes")
    assert done.out.endswith(f"{group}: moved in 3 queues of {topic}, {other}\n")
    assert [one.committed for one in admin.group_lag(group)] == [3, 1, 0]
    assert cometmq("group", "reset", group, "--to", "earliest", "--yes").code == 0
    assert [one.committed for one in admin.group_lag(group)] == [0, 0, 0]


def test_a_reset_asks_on_a_terminal(
    cometmq: Commands, admin: Admin, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for answer, code, committed in (("n\n", 130, None), ("y\n", 0, 3)):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        done = cometmq("group", "skip", group, topic)
        assert (done.code, "[y/N]" in done.err) == (code, True)
        assert admin.group_lag(group, topic)[0].committed == committed


@pytest.mark.parametrize("to", ["newest", "-1", "2026-99-01", "15y"])
def test_a_place_that_is_none_is_a_usage_error(cometmq: Commands, to: str) -> None:
    done = cometmq("group", "reset", "g", "t", f"--to={to}", "--yes")
    assert (done.code, "neither earliest, latest" in done.err) == (2, True)


@pytest.mark.parametrize("words", [(), ("g", "--all"), ("--all", "--topic", "t")])
def test_a_lag_is_of_one_group_or_of_all(cometmq: Commands, words: tuple[str, ...]) -> None:
    assert cometmq("group", "lag", *words).code == 2


def test_members_are_shown_with_their_queues_and_what_they_do(
    cometmq: Commands, admin: Admin, namesrv: str, group: str, topic: str
) -> None:
    consumer = PushConsumer(group, namesrv=namesrv, consume_from="first")
    seen: list[object] = []
    consumer.subscribe(topic, "*", seen.extend)
    with consumer:
        until(lambda: len(seen) == 4)
        (member,) = cometmq("group", "members", group, "--json").json["members"]
        assert (member["language"], member["problem"]) == ("PYTHON", None)
        assert [q["queue_id"] for q in member["queues"] if q["topic"] == topic] == [0, 1]
        head, row, *rest = cometmq("group", "members", group).out.splitlines()
        assert head.split() == ["member", "address", "language", "version", "queues"]
        assert row.split()[0] == member["client_id"]
        assert f"{topic}@{_broker(admin)} 0,1" in row
        assert f"subscribed: {topic} *" in rest
        lag = cometmq("group", "lag", group, "--topic", topic, "--json").json
        assert {one["owner"] for one in lag["queues"]} == {member["client_id"]}
        assert cometmq("group", "show", group, "--json").json["message_model"] == "CLUSTERING"
        running = cometmq("group", "running", group)
        assert running.out.startswith(member["client_id"])
        assert "committed" in running.out
        facts = cometmq("group", "running", group, "--json").json[member["client_id"]]
        assert {one["topic"] for one in facts["queues"]} >= {topic}
        refused = cometmq("group", "running", group, "--member", "nobody")
        assert "nobody is no connected member" in refused.err
        assert cometmq("group", "clone", "any", group, "--yes").code == 1
    assert cometmq("group", "members", group).out == f"{group}: no member is connected\n"


def test_offsets_are_cloned_exported_and_imported(
    cometmq: Commands, admin: Admin, group: str, topic: str, tmp_path: object
) -> None:
    assert cometmq("group", "reset", group, topic, "--to", "2", "--yes").code == 0
    cloned = cometmq("group", "clone", group, f"{group}-too", "--yes")
    assert cloned.out == f"{group}-too: where {group} is\n"
    assert [one.committed for one in admin.group_lag(f"{group}-too", topic)] == [2, 1]
    file = f"{tmp_path}/offsets.json"
    assert cometmq("offsets", "export", group, "-o", file).code == 0
    assert cometmq("group", "reset", group, topic, "--to", "earliest", "--yes").code == 0
    dry = cometmq("offsets", "import", file, "--dry-run")
    assert [group, topic, _broker(admin), "0", "0", "2"] in dry.rows
    assert cometmq("offsets", "import", file).code == 2
    moved = cometmq("offsets", "import", file, "--yes", "--json").json
    assert [one["after"] for one in moved["queues"]] == [2, 1]
    assert [one.committed for one in admin.group_lag(group, topic)] == [2, 1]
    assert "no offsets of nobody" in cometmq("offsets", "import", file, "--group", "nobody").err


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2, "groups": {}}', '{"version": 1, "groups": {"g": [{}]}}'],
)
def test_a_file_that_no_export_wrote_is_refused(
    cometmq: Commands, tmp_path: object, text: str
) -> None:
    file = f"{tmp_path}/other.json"
    with open(file, "w") as made:  # noqa: PTH123
        made.write(text)
    done = cometmq("offsets", "import", file, "--yes")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert file in done.err
