"""Values instead of bodies: serializers, typed topics, and messages that cannot be read."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from google.protobuf import struct_pb2, wrappers_pb2

from client.dead_letters import dead_letters
from client.short_delay_cluster import until
from cometmq import (
    AsyncPushConsumer,
    ClientError,
    InvalidMessage,
    LitePullConsumer,
    Message,
    MessageExt,
    OnFailure,
    Producer,
    PushConsumer,
    Received,
    SettingsError,
    Topic,
    ValueNotDecoded,
)
from cometmq.serializers import Avro, Json, Protobuf, Pydantic, Raw, Serializer, Text, Typed

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.testing.cluster import LocalCluster


class Size(enum.Enum):
    SMALL = "S"


@dataclass
class Order:
    number: int
    items: list[str]
    size: Size | None = None


class Bill(pydantic.BaseModel):
    number: int
    total: float


OLD = {"type": "record", "name": "Trip", "fields": [{"name": "a", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "none"}],
}

ROUND_TRIPS: list[tuple[Serializer[Any], Any, bytes]] = [
    (Raw(), b"\0\xff", b"\0\xff"),
    (Text(), "grüße", "grüße".encode()),
    (Json(), {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
    (Typed(Order), Order(7, ["tea"], Size.SMALL), b'{"number":7,"items":["tea"],"size":"S"}'),
    (Typed(list[Order]), [Order(1, [])], b'[{"number":1,"items":[],"size":null}]'),
    (Pydantic(Bill), Bill(number=1, total=2.5), b'{"number":1,"total":2.5}'),
    (Protobuf(wrappers_pb2.StringValue), wrappers_pb2.StringValue(value="x"), b"\n\x01x"),
    (Avro(NEW), {"a": 1, "b": "x"}, b"\x02\x02x"),
]


@pytest.mark.parametrize(("serializer", "value", "body"), ROUND_TRIPS, ids=repr)
def test_a_value_goes_out_and_comes_back(
    serializer: Serializer[Any], value: Any, body: bytes
) -> None:
    written = serializer.encode(value)
    assert written.endswith(body)
    assert serializer.decode(written) == value
    sent = Topic("T", serializer).message(value, tags="A", sharding_key="k")
    assert sent.properties == {"content-type": serializer.content_type}
    assert (sent.tags, sent.sharding_key, sent.body) == ("A", "k", written)


def test_msgpack_is_another_form_of_typed_values() -> None:
    packed = Typed(Order, format="msgpack")
    assert packed.decode(packed.encode(Order(7, ["tea"]))) == Order(7, ["tea"])
    assert packed.content_type == "application/msgpack"


WRONG_VALUES: list[tuple[Serializer[Any], Any]] = [
    (Raw(), "text"),
    (Text(), b"bytes"),
    (Json(), {1, 2}),
    (Json(), float("nan")),
    (Typed(Order), Order("seven", [])),  # type: ignore[arg-type]
    (Pydantic(Bill), {"number": "many"}),
    (Protobuf(wrappers_pb2.StringValue), struct_pb2.Struct()),
    (Avro(NEW), {"a": "text", "b": "x"}),
    (Avro(NEW), {"a": 1, "b": "x", "c": 1}),
]


@pytest.mark.parametrize(("serializer", "value"), WRONG_VALUES, ids=repr)
def test_a_value_that_does_not_fit_is_not_sent(serializer: Serializer[Any], value: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"a value of \w+ for T cannot be written by \w+"):
        Topic("T", serializer).message(value)


def received(body: bytes, content_type: str = "") -> MessageExt:
    raw = f"content-type\x01{content_type}\x02".encode() if content_type else b""
    return MessageExt("T", 3, 5, body, raw, 0, 0, 0, 0, 0, b"", 0, b"", 0, "b")


@pytest.mark.parametrize(
    ("serializer", "body", "said"),
    [
        (Text(), b"\xff", "can't decode byte 0xff"),
        (Json(), b"{", "Expecting property name"),
        (Typed(Order), b'{"number":"7","items":[]}', "Expected `int`, got `str`"),
        (Pydantic(Bill), b"{}", "Field required"),
        (Protobuf(wrappers_pb2.StringValue), b"\xff", ""),
        (Avro(NEW), b"xyz", "with C3 01"),
        (Avro(NEW), b"\xc3\x01" + bytes(8), "which is not known here"),
    ],
    ids=repr,
)
def test_a_body_that_is_no_value_says_which_message_and_why(
    serializer: Serializer[Any], body: bytes, said: str
) -> None:
    with pytest.raises(ValueNotDecoded, match=r"^MessageExt\(T@b\[3\]:5, .* be read by") as caught:
        Topic("T", serializer).value(received(body))
    assert said in str(caught.value)


def test_a_body_of_another_content_type_is_not_read() -> None:
    orders = Topic("T", Json())
    assert orders.value(received(b"1", "Application/JSON; charset=utf-8")) == 1
    assert orders.value(received(b"1")) == 1  # of a sender that does not say
    with pytest.raises(ValueNotDecoded, match=r"is text/plain, and Json reads application/json"):
        orders.value(received(b"1", "text/plain"))


def test_a_reader_of_a_newer_schema_reads_what_an_older_one_wrote() -> None:
    body = Avro(OLD).encode({"a": 7})
    assert Avro(NEW, older=[OLD]).decode(body) == {"a": 7, "b": "none"}


def test_what_is_no_serializer_and_no_library_is_said() -> None:
    with pytest.raises(ClientError, match="must be one of cometmq"):
        Topic("T", dict)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="the topic 'a b' has characters"):
        Topic("a b", Json())
    with pytest.raises(SettingsError, match="a class that protoc generated"):
        Protobuf(Order)
    with pytest.raises(SettingsError, match="'json' or 'msgpack'"):
        Typed(Order, format="yaml")
    code = (
        "import sys; sys.modules.update(msgspec=None, fastavro=None)\n"
        "from cometmq.serializers import Typed, Avro\n"
        "for make in (lambda: Typed(int), lambda: Avro({})):\n"
        "    try: make()\n"
        "    except Exception as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [
        "Typed needs msgspec: pip install 'cometmq[fast]'",
        "Avro needs fastavro: pip install 'cometmq[avro]'",
    ]


def test_handlers_get_values_and_a_decorator_subscribes(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    orders = Topic(topic, Typed(Order))
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first")
    seen: list[Received[Order]] = []

    @consumer.handler(orders.name)
    @orders.handler
    def book(batch: list[Received[Order]]) -> None:
        seen.extend(batch)

    with Producer("senders", namesrv=cluster.namesrv) as producer, consumer:
        producer.send(orders.message(Order(1, ["tea"]), sharding_key="a"))
        producer.send(orders.message(Order(2, [])))
        until(lambda: len(seen) == 2)
    assert sorted(one.value.number for one in seen) == [1, 2]
    assert {one.message.topic for one in seen} == {topic}
    reader = LitePullConsumer(f"{group}-polls", namesrv=cluster.namesrv, consume_from="first")
    reader.subscribe(topic)
    polled: list[Order] = []
    with reader:
        until(lambda: polled.extend(map(orders.value, reader.poll(1.0))) or len(polled) == 2)
    assert sorted(one.number for one in polled) == [1, 2]


def test_an_async_function_gets_one_value_at_a_time(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    texts = Topic(topic, Text())
    seen: list[str] = []

    async def main() -> None:
        consumer = AsyncPushConsumer(group, namesrv=cluster.namesrv, consume_from="first")

        @consumer.handler(texts.name)
        @texts.each
        async def note(one: Received[str]) -> None:
            seen.append(one.value)

        async with consumer, asyncio.timeout(30):
            while len(seen) < 3:
                await asyncio.sleep(0.01)

    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for text in "abc":
            producer.send(texts.message(text))
    asyncio.run(main())
    assert sorted(seen) == ["a", "b", "c"]


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_a_message_that_cannot_be_read_becomes_a_dead_letter_at_once(
    cluster: LocalCluster, topic: str, group: str, order: str, tmp_path: Path
) -> None:
    numbers = Topic(topic, Typed(int))
    seen: list[int] = []
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        consume_from="first",
        order=order,  # type: ignore[arg-type]
        state_dir=tmp_path,
    )
    consumer.subscribe(topic, "*", numbers.each(lambda one: seen.append(one.value)))
    with Producer("senders", namesrv=cluster.namesrv) as producer, consumer:
        producer.send(numbers.message(1, sharding_key="k"))
        producer.send(Message(topic, b"many", sharding_key="k"))
        producer.send(numbers.message(2, sharding_key="k"))
        until(lambda: sorted(seen) == [1, 2])
        (letter,) = dead_letters(cluster, group, 1)
    assert letter.body == b"many"
    reason = letter.properties["DLQ_REASON"]
    assert reason.startswith("ValueNotDecoded: MessageExt(")
    assert "cannot be read by Typed(int)" in reason


def test_a_policy_may_say_otherwise_and_a_batch_keeps_what_was_done(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    numbers = Topic(topic, Typed(int))
    batches: list[list[int]] = []
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        consume_from="first",
        order="queue",
        batch_size=10,
        suspend_ms=10,
    )

    @consumer.handler(topic, on_failure={ValueNotDecoded: OnFailure.skip()})
    @numbers.handler
    def note(batch: list[Received[int]]) -> None:
        batches.append([one.value for one in batch])

    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for body in (b"1", b"2", b"x", b"3"):
            producer.send(Message(topic, body, sharding_key="k"))
        with consumer:
            until(lambda: sum(map(len, batches)) == 3)
    assert [one for batch in batches for one in batch] == [1, 2, 3]


def test_one_of_a_batch_that_fails_leaves_those_before_it_done(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    numbers = Topic(topic, Typed(int))
    seen: list[int] = []

    def note(one: Received[int]) -> None:
        if one.value == 3 and seen.count(3) < 1:
            seen.append(3)
            raise ZeroDivisionError("once")
        seen.append(one.value)

    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        consume_from="first",
        order="queue",
        batch_size=10,
        suspend_ms=10,
    )
    consumer.subscribe(topic, "*", numbers.each(note))
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for value in (1, 2, 3, 4):
            producer.send(numbers.message(value, sharding_key="k"))
        with consumer:
            until(lambda: seen[-1:] == [4])
    assert seen == [1, 2, 3, 3, 4]


TYPED_PROGRAM = """
from dataclasses import dataclass
from cometmq import Producer, PushConsumer, Received, Topic
from cometmq.serializers import Typed

@dataclass
class Order:
    number: int

orders = Topic("orders", Typed(Order))
consumer = PushConsumer("g")

@consumer.handler("orders")
@orders.handler
def book(batch: list[Received[Order]]) -> None:
    for one in batch:
        number: int = one.value.number

@orders.each
async def note(one: Received[Order]) -> None: ...

def send(producer: Producer) -> None:
    producer.send(orders.message(Order(1)))
"""
WRONG_PROGRAM = """
def wrong(batch: list[Received[str]]) -> None: ...

orders.message("seven")
orders.handler(wrong)
"""


def test_a_type_checker_sees_what_a_topic_carries(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED_PROGRAM + WRONG_PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    options = ["--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent"]
    done = subprocess.run([*command, *options, str(program)], capture_output=True, text=True)
    lines = (TYPED_PROGRAM + WRONG_PROGRAM).splitlines()
    wrong = [
        lines[int(line.split(":")[1]) - 1] for line in done.stdout.splitlines() if "error" in line
    ]
    assert wrong == ['orders.message("seven")', "orders.handler(wrong)"], done.stdout + done.stderr
