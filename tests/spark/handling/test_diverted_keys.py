"""A key that fails is diverted: its later messages follow the failed one to the dead letters."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from broker.commands import send_header
from cometmq import Admin, MessageQueue, OnFailure
from cometmq.errors import SendFailed
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.spark.handling import diverted_keys
from cometmq.spark.handling.diverted_keys import DivertedShardingKeys
from cometmq.wire.codes import RequestCode
from spark import handler_plans as plans
from spark.handler_plans import FOR_EVER, Failure, Plan, PlannedHandler
from spark.live import Live
from spark.micro_batches import AMID, UNNOTED, Here, MicroBatches, NotReported

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
_numbers = count()
DIVERT = OnFailure.retry(1, OnFailure.divert(), pause_ms=10)
KINDS = [error for error in plans.ERRORS if error != "unreadable"]


class Diverting:
    """A query whose handler fails for `a-1`, and what became of its messages."""

    def __init__(
        self,
        live: Live,
        topic: str,
        root: Path,
        order: str,
        batch_size: int = 1,
        error: str = "value",
    ) -> None:
        self.live, self.topic = live, topic
        self.group = f"diverting{next(_numbers)}"
        self.path = str(root / self.group)
        self.query = MicroBatches(
            live,
            self.group,
            topic,
            PlannedHandler(Plan((), {"a-1": Failure(FOR_EVER, error)}), self.path),
            consume_from="first",
            order=order,
            batch_size=batch_size,
            on_failure={plans.ERRORS[error]: DIVERT, Exception: OnFailure.stop()},
            suspend_ms=10,
        )

    def handle(self, *bodies: str) -> None:
        if bodies:
            plans.send(self.live, self.topic, Plan(bodies, {}))
        while self.query.run_batch():
            pass

    def done(self, key: str) -> list[str]:
        """What was done of a key, repeats left out."""
        done = (body for body, _, kind in plans.calls_of(self.path) if kind == "done")
        return list(dict.fromkeys(body for body in done if body.startswith(key)))

    def dead(self) -> list[tuple[str, str]]:
        letters = plans.letters_of(self.live, self.group)
        assert all(letter.properties["DLQ_DIVERTED"] for letter in letters)
        return [(one.body.decode(), one.properties["DLQ_ATTEMPTS"]) for one in letters]


@pytest.mark.parametrize(("order", "batch_size"), [("queue", 1), ("key", 1), ("key", 3)])
def test_later_messages_of_the_key_follow_in_order_until_the_letters_are_released(
    live: Live, topic: str, tmp_path: Path, order: str, batch_size: int
) -> None:
    case = Diverting(live, topic, tmp_path, order, batch_size)
    case.handle("a-0", "b-0", "a-1", "b-1", "a-2", "b-2", "a-3")
    assert case.done("a") == ["a-0"]
    assert case.done("b") == ["b-0", "b-1", "b-2"]
    assert case.dead() == [("a-1", "2"), ("a-2", "0"), ("a-3", "0")]
    case.query.start()  # another process, which reads the letters
    case.handle("a-4", "b-4")
    assert case.dead()[3:] == [("a-4", "0")]
    (broker,) = {message.broker_name for message in plans.letters_of(live, case.group)}
    with Admin(namesrv=live.namesrv) as admin:
        admin.set_group_offsets(case.group, {MessageQueue(f"%DLQ%{case.group}", broker, 0): 4})
    case.handle("a-5", "b-5")
    assert case.done("a") == ["a-0", "a-5"]
    assert case.done("b") == ["b-0", "b-1", "b-2", "b-4", "b-5"]


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_replayed_batch_sends_no_letter_twice_and_diverts_nothing_before_the_failed_one(
    live: Live, topic: str, tmp_path: Path, order: str
) -> None:
    case = Diverting(live, topic, tmp_path, order)
    plans.send(live, topic, Plan(("a-0", "b-0", "a-1", "a-2", "b-2"), {}))
    for _ in range(2):
        with pytest.raises(NotReported):
            case.query.run_batch(UNNOTED)
        case.query.start()
    assert case.query.run_batch()
    assert case.done("a") == ["a-0"]
    assert case.done("b") == ["b-0", "b-2"]
    assert case.dead() == [("a-1", "2"), ("a-2", "0")]


def test_a_broker_that_does_not_say_at_once_which_keys_are_diverted_is_asked_again(
    live: Live, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [SendFailed("it starts"), SendFailed("it starts")]
    read = DivertedShardingKeys._read_letters

    async def read_later(keys: DivertedShardingKeys, broker_name: str) -> None:
        if failures:
            raise failures.pop()
        await read(keys, broker_name)

    monkeypatch.setattr(DivertedShardingKeys, "_read_letters", read_later)
    case = Diverting(live, topic, tmp_path, "key")
    case.handle("a-0", "a-1", "a-2")
    assert not failures
    assert case.dead() == [("a-1", "2"), ("a-2", "0")]


def test_more_letters_than_a_process_keeps_end_the_query_until_some_are_released(
    live: Live, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diverted_keys, "LETTERS_MAX", 2)
    case = Diverting(live, topic, tmp_path, "key")
    case.handle("a-0", "a-1", "a-2", "a-3")
    assert len(case.dead()) == 3
    with pytest.raises(AssertionError, match=r"more than 2 .* what lies in %DLQ%diverting"):
        case.handle("a-4", "b-4")
    assert case.done("b") == [], "nothing is handled meanwhile"
    (broker,) = {message.broker_name for message in plans.letters_of(live, case.group)}
    with Admin(namesrv=live.namesrv) as admin:
        admin.set_group_offsets(case.group, {MessageQueue(f"%DLQ%{case.group}", broker, 0): 2})
    case.handle()
    assert case.done("b") == ["b-4"]
    assert case.dead()[3:] == [("a-4", "0")], "its key is diverted by the letter that is left"


def test_a_letter_without_key_diverts_nothing(live: Live, topic: str, tmp_path: Path) -> None:
    calls: list[bytes] = []

    def fail_first(messages: list[plans.MessageExt]) -> None:
        calls.append(messages[0].body)
        if len(calls) == 1:
            raise ValueError("bad")

    live.send(topic, 0, [b"1", b"2"])
    group = f"diverting{next(_numbers)}"
    settings = {"consume_from": "first", "order": "key", "on_failure": OnFailure.divert()}
    query = MicroBatches(live, group, topic, Here(fail_first), **settings)
    assert query.run_batch()
    assert calls == [b"1", b"2"]
    assert [letter.body for letter in plans.letters_of(live, group)] == [b"1"]


def test_a_message_of_the_retry_topic_diverts_nothing_and_takes_the_place_of_no_other(
    live: Live, topic: str, tmp_path: Path
) -> None:
    case = Diverting(live, topic, tmp_path, "key")
    case.handle("a-0")
    pairs = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": "7F0000010FA118B4AAC2000000000001"}
    pairs |= {"UNIQ_KEY": "came-back", "__SHARDINGKEY": "a"}
    with BlockingChannel(live.broker) as channel:
        header = send_header(f"%RETRY%{case.group}", properties=pairs)
        assert channel.call(RequestCode.SEND_MESSAGE_V2, header, b"a-1").code == 0
    case.query.start()  # it looks up the retry topic
    case.handle()
    live.send(topic, 0, [b"b-0"])  # at the place that the other one had in the retry topic
    case.handle("a-2")
    assert case.done("a") == ["a-0", "a-2"]
    assert case.done("b") == ["b-0"]
    (letter,) = plans.letters_of(live, case.group)
    assert letter.body == b"a-1"
    assert "DLQ_DIVERTED" not in letter.properties


@pytest.mark.slow
@pytest.mark.parametrize("order", ["none", "key"])
def test_messages_become_dead_letters_where_brokers_create_no_topics_by_themselves(
    tmp_path: Path, order: str
) -> None:
    with Live(tmp_path / "strict", auto_create_topic_enable=False) as strict:
        topic = strict.make_topic("Strict", 2)
        plans.send(strict, topic, Plan(("a-0", "a-1", "a-2"), {}))
        handler = PlannedHandler(
            Plan((), {"a-1": Failure(FOR_EVER, "value")}), str(tmp_path / "calls")
        )
        policy = OnFailure.divert() if order == "key" else OnFailure.dead_letter()
        query = MicroBatches(
            strict, "strict", topic, handler, consume_from="first", order=order, on_failure=policy
        )
        while query.run_batch():
            pass
        letters = [letter.body for letter in plans.letters_of(strict, "strict")]
    assert letters == ([b"a-1", b"a-2"] if order == "key" else [b"a-1"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(21))
def test_many_keys_are_diverted_whatever_is_replayed(
    live: Live, topic: str, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    order, batch_size = dice.choice(("queue", "key")), dice.choice((1, 3))
    case = Diverting(live, topic, tmp_path, order, batch_size, KINDS[seed % len(KINDS)])
    sent: dict[str, list[str]] = {key: [] for key in "abc"}
    for _ in range(4):
        bodies = []
        for _ in range(dice.randrange(1, 8)):
            key = dice.choice("abc")
            sent[key].append(f"{key}-{len(sent[key])}")
            bodies.append(sent[key][-1])
        plans.send(live, topic, Plan(tuple(bodies), {}))
        if dice.random() < 0.5:
            with pytest.raises(NotReported):
                case.query.run_batch(dice.choice((UNNOTED, AMID)))
            case.query.start()
        case.handle()
    assert case.done("b") == sent["b"]
    assert case.done("c") == sent["c"]
    assert case.done("a") == sent["a"][:1]
    assert [body for body, _ in case.dead()] == sent["a"][1:]
