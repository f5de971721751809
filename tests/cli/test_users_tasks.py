"""What four kinds of user set out to do, done by `cometmq` and this package alone.

An operator, a tester, an engineer and a newcomer each have a list of tasks; a test is one task. The
server is `cometmq standalone` as anybody starts it, and no other tool is used.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from cli.in_process import Commands
from cli.shell import cometmq as shell
from cli.shell import sentence, serving
from client.short_delay_cluster import until
from cometmq import Message, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.shell import RunningServer

PAGES = Path(__file__).parents[2] / "docs"
FREE = ("--namesrv-port=0", "--broker-port=0")
SHOWN = ("healthEnable=true", "metricsExporterType=PROM", "metricsPromExporterPort=0")
OPTIONS = (*FREE, *(f"--set={each}" for each in SHOWN))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One standalone for all tasks; each has topics and groups of its own."""
    store = tmp_path_factory.mktemp("tasks")
    with serving(store, "standalone", f"--store={store / 'store'}", *OPTIONS) as running:
        yield running


@pytest.fixture
def cometmq(server: RunningServer) -> Commands:
    return Commands(server.facts["namesrv"])


def sent(cometmq: Commands, topic: str, *bodies: str, queues: int = 1, tag: str = "T") -> None:
    """A topic with messages in it, all in queue 0."""
    assert cometmq("topic", "create", topic, "--queues", str(queues)).code == 0
    for body in bodies:
        words = ("--tag", tag, "--key", f"key-of-{body}", "--queue", "broker-a:0")
        assert cometmq("topic", "send", topic, body, *words).code == 0


def member(cometmq: Commands, group: str, topic: str, handle: Any, **more: Any) -> PushConsumer:
    """Another process's consumer, here in a thread of the test's."""
    expression = more.pop("expression", "*")
    consumer = PushConsumer(group, namesrv=cometmq.namesrv, **more)
    consumer.subscribe(topic, expression, handle)
    return consumer


# ---- the operator


def get(url: str, path: str) -> str:
    with urlopen(url + path, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_operator_is_it_well_and_what_does_it_do(cometmq: Commands, server: RunningServer) -> None:
    url = server.facts["monitoring"]
    assert shell("health", "--url", url).returncode == 0
    assert get(url, "/live")  # another status than 200 raises
    assert get(url, "/ready")
    sent(cometmq, "op-seen", "a", "b")
    until(lambda: "rocketmq_messages_in_total{" in get(url, "/metrics"))
    (broker,) = cometmq("brokers", "list", "--json").json
    assert (broker["broker"], broker["problem"]) == ("broker-a", None)
    assert "broker-a" in cometmq("cluster").out
    assert cometmq("doctor").code == 0


def test_operator_makes_changes_and_deletes_a_topic(cometmq: Commands) -> None:
    sent(cometmq, "op-made", "a", queues=2)
    assert cometmq("topic", "alter", "op-made", "--queues", "3").code == 0
    route = cometmq("topic", "route", "op-made", "--json").json["brokers"]
    assert [(one["read_queues"], one["write_queues"]) for one in route] == [(3, 3)]
    assert cometmq("topic", "status", "op-made", "--json").json["messages"] == 1
    assert cometmq("topic", "delete", "op-made").code != 0, "without --yes nothing is deleted"
    assert "op-made" in cometmq("topic", "list", "--json").json
    assert cometmq("topic", "delete", "op-made", "--yes").code == 0
    assert "op-made" not in cometmq("topic", "list", "--json").json


def test_operator_moves_a_group_and_takes_it_back(cometmq: Commands, tmp_path: Path) -> None:
    sent(cometmq, "op-moved", "a", "b", "c")
    assert cometmq("group", "create", "op-movers").code == 0
    reset = ("group", "reset", "op-movers", "op-moved", "--json")
    planned = cometmq(*reset, "--to", "1", "--dry-run").json
    assert (planned["moved"], [one["after"] for one in planned["queues"]]) == (False, [1])
    assert cometmq("group", "lag", "op-movers", "--json").json["lag"] == 0
    assert cometmq(*reset, "--to", "1", "--yes").json["moved"] is True
    assert cometmq("group", "lag", "op-movers", "--json").json["lag"] == 2
    file = str(tmp_path / "offsets.json")
    assert cometmq("offsets", "export", "op-movers", "-o", file).code == 0
    assert cometmq("group", "skip", "op-movers", "op-moved", "--yes").code == 0
    assert cometmq("group", "lag", "op-movers", "--json").json["lag"] == 0
    assert cometmq("offsets", "import", file, "--yes").code == 0
    assert cometmq("group", "lag", "op-movers", "--json").json["lag"] == 2


def test_operator_finds_a_message_and_has_it_handled_again(cometmq: Commands) -> None:
    sent(cometmq, "op-found", "a", "b")
    until(lambda: cometmq("message", "by-key", "op-found", "key-of-b", "--json").json)
    (found,) = cometmq("message", "by-key", "op-found", "key-of-b", "--json").json
    assert cometmq("message", "get", "op-found", found["msg_id"], "--json").json["body"] == "b"
    assert cometmq("message", "resend", "op-found", found["msg_id"], "--yes").code == 0
    peeked = cometmq("topic", "peek", "op-found", "--json").json
    assert [one["body"] for one in peeked] == ["a", "b", "b"]


def test_operator_takes_a_broker_out_of_writing_and_changes_it_live(cometmq: Commands) -> None:
    sent(cometmq, "op-wiped", "a")
    assert cometmq("brokers", "wipe-write", "broker-a").code == 0
    try:
        refused = cometmq("topic", "send", "op-wiped", "b")
        assert refused.code == 1
        assert len(refused.err.splitlines()) == 1, refused.err
        assert cometmq("doctor").code == 1
    finally:
        assert cometmq("brokers", "restore-write", "broker-a").code == 0
    assert cometmq("topic", "send", "op-wiped", "b").code == 0
    assert cometmq("brokers", "config", "set", "broker-a", "fileReservedTime=71").code == 0
    shown = cometmq("brokers", "config", "get", "broker-a", "fileReservedTime", "--json").json
    assert shown == {"fileReservedTime": "71"}


def test_operator_backs_up_a_running_broker_and_starts_from_the_copy(
    cometmq: Commands, server: RunningServer, tmp_path: Path
) -> None:
    sent(cometmq, "op-saved", "precious")
    target = tmp_path / "copy"
    assert shell("store", "snapshot", server.facts["store"], str(target)).returncode == 0
    assert shell("store", "verify", str(target)).returncode == 0
    with serving(tmp_path, "standalone", f"--store={target}", *FREE) as restored:
        copy = Commands(restored.facts["namesrv"])
        (found,) = copy("topic", "peek", "op-saved", "--json").json
        assert found["body"] == "precious"
        code, stderr = restored.end(signal.SIGTERM)
        assert code == 0, stderr


def test_operator_reads_what_to_do_when_a_start_is_refused(server: RunningServer) -> None:
    said = sentence(shell("standalone", f"--store={server.facts['store']}", *FREE))
    assert "in use by another broker" in said
    said = sentence(shell("standalone", *FREE, "--set", "fileReservedTmie=1"))
    assert "did you mean fileReservedTime?" in said


# ---- the tester

_TESTS = """
from cometmq import Message, Producer, PushConsumer
from cometmq.testing import Inbox


def test_in_order(cometmq_cluster, cometmq_topic, cometmq_group):
    inbox = Inbox()
    consumer = PushConsumer(cometmq_group, namesrv=cometmq_cluster.namesrv, consume_from="first")
    consumer.subscribe(cometmq_topic, "*", inbox)
    with consumer, Producer("senders", namesrv=cometmq_cluster.namesrv) as producer:
        for number in range(10):
            producer.send(Message(cometmq_topic, b"%d" % number, sharding_key="k"))
        assert len(inbox.wait(10)) == 10
    inbox.assert_in_order()


def test_a_crash(cometmq_own_cluster):
    with Producer("senders", namesrv=cometmq_own_cluster.namesrv) as producer:
        producer.send(Message("kept", b"x"))
        cometmq_own_cluster.kill()
        cometmq_own_cluster.restart()
        producer.send(Message("kept", b"y"))
"""


def test_tester_writes_tests_with_no_fixture_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_tester_runs_the_same_tests_on_a_cluster_that_is_there(
    server: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "test_mine.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "in_order"]
    command.append(f"--cometmq-namesrv={server.facts['namesrv']}")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


# ---- the engineer


def test_engineer_sees_what_a_wrong_call_says(cometmq: Commands, server: RunningServer) -> None:
    code = f"""
from cometmq import LitePullConsumer, Message, Producer, PushConsumer
where = {server.facts["namesrv"]!r}
with Producer("wrong", namesrv=where) as producer:
    for call in (
        lambda: producer.send("x", b"a"),
        lambda: producer.send(Message("wrong", b"a"), queue=lambda queues, _: queues[99]),
    ):
        try:
            call()
        except Exception as error:
            print(f"{{type(error).__name__}}: {{error}}")
consumer = LitePullConsumer("wrong", namesrv=where)
with consumer:
    for timeout_s in (1.0, 1000):
        try:
            consumer.poll(timeout_s)
        except Exception as error:
            print(f"{{type(error).__name__}}: {{error}}")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 4, said
    assert all(re.search(what, line) for what, line in zip(_SAID, said, strict=True)), said


_SAID = (
    r"^ClientError: .*Message\('topic', b'body'\)",
    r"^ClientError: .*queue= raised IndexError",
    r"^ClientError: .*nothing to poll: subscribe",
    r"^ClientError: timeout_s is 1000; it is in seconds",
)


def test_engineer_sees_how_a_consumer_and_a_producer_do(cometmq: Commands) -> None:
    sent(cometmq, "en-seen")
    handled = threading.Semaphore(0)
    consumer = member(cometmq, "en-seers", "en-seen", lambda _: handled.release())
    with consumer, Producer("en-senders", namesrv=cometmq.namesrv) as producer:
        until(lambda: cometmq("group", "members", "en-seers", "--json").json["members"])
        producer.send(Message("en-seen", b"x"))
        (broker,) = producer.stats().brokers.values()
        assert broker is not None
        assert handled.acquire(timeout=30)
        until(lambda: consumer.stats().topics["en-seen"].consume_ok_tps)


# ---- the newcomer


def test_newcomer_how_far_behind_is_my_group(cometmq: Commands) -> None:
    sent(cometmq, "new-behind", "a", "b", "c")
    assert cometmq("group", "create", "new-late").code == 0
    assert cometmq("group", "reset", "new-late", "new-behind", "--to", "1", "--yes").code == 0
    assert cometmq("group", "lag", "new-late").rows[-1][:2] == ["all", "2"]
    everyone = {row["group"]: row["lag"] for row in cometmq("group", "lag", "--all", "--json").json}
    assert everyone["new-late"] == 2
    typo = cometmq("group", "lag", "new-latte")
    assert (typo.code, "did you mean new-late?" in typo.err) == (1, True), typo


def test_newcomer_who_is_a_member(cometmq: Commands) -> None:
    sent(cometmq, "new-read", "a", queues=2)
    with member(cometmq, "new-readers", "new-read", lambda _: None):
        until(lambda: len(owners(cometmq, "new-readers", "new-read")) == 1)
        (one,) = cometmq("group", "members", "new-readers", "--json").json["members"]
        assert owners(cometmq, "new-readers", "new-read") == {one["client_id"]}
        assert (one["language"], one["problem"]) == ("PYTHON", None)
        assert one["addr"].startswith("127.0.0.1:")


def owners(cometmq: Commands, group: str, topic: str) -> set[str]:
    done = cometmq("group", "lag", group, "--topic", topic, "--json")
    return {row["owner"] for row in done.json["queues"]} - {None} if done.code == 0 else set()


def test_newcomer_what_died_and_why(cometmq: Commands) -> None:
    sent(cometmq, "new-paid", "bad")

    def fail(_: object) -> None:
        raise ValueError("the card has expired")

    with member(cometmq, "new-payers", "new-paid", fail, consume_from="first", max_attempts=1):
        until(lambda: dict(dead(cometmq)).get("new-payers") == 1)
    (letter,) = cometmq("dlq", "show", "new-payers", "--json").json
    assert (letter["body"], letter["origin_topic"], letter["attempts"]) == ("bad", "new-paid", "1")
    assert letter["reason"] == "ValueError: the card has expired"
    assert "the card has expired" in cometmq("dlq", "show", "new-payers").out


def dead(cometmq: Commands) -> list[tuple[str, int]]:
    return [(row["group"], row["letters"]) for row in cometmq("dlq", "list", "--json").json]


def test_newcomer_why_does_nothing_arrive_nobody_listens(tmp_path: Path) -> None:
    done = shell("doctor", "-n", "127.0.0.1:9", "--timeout", "2")
    assert done.returncode == 1
    assert "FAULT" in done.stdout
    assert "do: " in done.stdout


def test_newcomer_why_does_nothing_arrive_the_group_is_at_the_end(cometmq: Commands) -> None:
    sent(cometmq, "new-end", "a", "b")
    assert cometmq("group", "create", "new-enders").code == 0
    assert cometmq("group", "skip", "new-enders", "new-end", "--yes").code == 0
    got: list[bytes] = []
    with member(cometmq, "new-enders", "new-end", lambda ms: got.extend(m.body for m in ms)):
        until(lambda: owners(cometmq, "new-enders", "new-end"))
        assert committed(cometmq, "new-enders", "new-end") == [2]
        assert cometmq("topic", "status", "new-end", "--json").json["messages"] == 2
        assert not got
        reset = ("group", "reset", "new-enders", "new-end", "--to", "earliest", "--yes")
        assert cometmq(*reset).code == 0
        until(lambda: got == [b"a", b"b"])


def committed(cometmq: Commands, group: str, topic: str) -> list[int | None]:
    done = cometmq("group", "lag", group, "--topic", topic, "--json")
    return [row["committed"] for row in done.json["queues"]] if done.code == 0 else []


def test_newcomer_why_does_nothing_arrive_the_tag_is_another(cometmq: Commands) -> None:
    sent(cometmq, "new-tags", "a", tag="paid")
    with member(
        cometmq, "new-taggers", "new-tags", lambda _: None, expression="PAID", consume_from="first"
    ):
        until(lambda: owners(cometmq, "new-taggers", "new-tags"))
        shown = cometmq("group", "members", "new-taggers", "--json").json
        assert shown["subscriptions"]["new-tags"] == "PAID"
    (stored,) = cometmq("topic", "peek", "new-tags", "--json").json
    assert stored["tags"] == "paid"


def test_newcomer_why_does_nothing_arrive_members_want_different_things(cometmq: Commands) -> None:
    sent(cometmq, "new-mixed", "a")
    sent(cometmq, "new-other", "a")
    group = "new-mixers"
    one = member(cometmq, group, "new-mixed", lambda _: None, instance_name="one")
    other = member(cometmq, group, "new-other", lambda _: None, instance_name="other")
    with one, other:
        until(lambda: len(cometmq("group", "members", group, "--json").json["members"]) == 2)
        done = cometmq("doctor", "--group", group, "--json")
        assert done.code == 1
        checks = [each["check"] for each in json.loads(done.out)["findings"]]
        assert "subscriptions" in checks


def test_newcomer_why_does_nothing_arrive_nobody_consumes(cometmq: Commands) -> None:
    assert cometmq("group", "create", "new-empty").code == 0
    done = cometmq("doctor", "--group", "new-empty", "--json")
    (found,) = (one for one in done.json["findings"] if one["subject"] == "new-empty")
    assert (found["check"], found["severity"]) == ("group", "notice")


def test_every_command_of_these_tasks_is_on_the_page_of_the_command_line() -> None:
    page = (PAGES / "operate" / "cli.md").read_text()
    used = set(
        re.findall(r'(?:cometmq|shell)\(\s*"(\w+)", "([a-z][\w-]*)"', Path(__file__).read_text())
    )
    nouns = {"topic", "group", "message", "dlq", "brokers", "offsets", "store"}
    assert not {
        f"{noun} {verb}"
        for noun, verb in used
        if noun in nouns and f"cometmq {noun} {verb}" not in page
    }
