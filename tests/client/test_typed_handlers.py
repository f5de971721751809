"""Typed handlers whose functions return, raise or are what no handler may be."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import (
    ClientError,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    Received,
    RetryLater,
    Topic,
)
from cometmq.client.handling.handler_call import PartlyHandled, call_handler
from cometmq.serializers import Json, Serializer, Typed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.cluster import LocalCluster

NUMBERS = Topic("T", Json())


def received(*bodies: bytes) -> list[MessageExt]:
    return [
        MessageExt("T", 3, at, body, b"", 0, 0, 0, 0, 0, b"", 0, b"", 0, "b")
        for at, body in enumerate(bodies)
    ]


@pytest.mark.parametrize("order", ["none", "queue"])
def test_messages_that_a_handler_wants_again_are_not_lost_to_an_unreadable_neighbour(
    cluster: LocalCluster, topic: str, group: str, order: str
) -> None:
    numbers = Topic(topic, Typed(int))
    seen: list[int] = []
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        consume_from="first",
        order=order,  # type: ignore[arg-type]
        batch_size=10,
        suspend_ms=10,
    )

    @consumer.handler(topic)
    @numbers.handler
    def note(batch: list[Received[int]]) -> ConsumeStatus:
        seen.extend(one.value for one in batch)
        is_second = seen.count(1) > 1
        return ConsumeStatus.SUCCESS if is_second else ConsumeStatus.RECONSUME_LATER

    with Producer("senders", namesrv=cluster.namesrv) as producer:
        producer.send_batch([Message(topic, body) for body in (b"1", b"x")])
        with consumer:
            until(lambda: seen == [1, 1])


def test_a_function_for_each_value_is_judged_by_what_it_returns() -> None:
    returned: dict[int, Any] = {1: None, 2: ConsumeStatus.RECONSUME_LATER, 3: "text"}
    handler = NUMBERS.each(lambda one: returned[one.value])
    assert call_handler(handler, received(b"1", b"1")).is_done
    later = call_handler(handler, received(b"1", b"2", b"1"))
    assert (later.is_done, later.done_count, later.reason) == (
        False,
        1,
        "RetryLater: RECONSUME_LATER",
    )
    wrong = call_handler(handler, received(b"1", b"1", b"3"))
    assert (wrong.is_done, wrong.done_count) == (False, 2)
    assert "returned str, which is no ConsumeStatus" in wrong.reason


def test_a_coroutine_that_nobody_awaits_is_no_success() -> None:
    async def note(one: Received[Any]) -> None:
        raise AssertionError("a plain function cannot have it awaited")

    made: list[Any] = []
    handler = NUMBERS.each(lambda one: made.append(note(one)) or made[-1])
    outcome = call_handler(handler, received(b"1"))
    made[0].close()
    assert not outcome.is_done
    assert "returned coroutine, which is no ConsumeStatus" in outcome.reason


def test_an_error_is_not_its_own_cause_and_a_shared_one_is_not_changed() -> None:
    later = RetryLater("busy", after_s=2.5)

    def fail(one: Received[Any]) -> None:
        if one.value:
            raise later if one.value == 1 else ZeroDivisionError

    handler = NUMBERS.each(fail)
    with pytest.raises(ZeroDivisionError) as first:
        handler(received(b"2"))
    assert first.value.__cause__ is None
    with pytest.raises(PartlyHandled) as second:
        handler(received(b"0", b"2"))
    assert (second.value.done, type(second.value.error)) == (1, ZeroDivisionError)
    for _ in range(2):
        with pytest.raises(RetryLater) as third:
            handler(received(b"0", b"0", b"1"))
        assert (third.value.done, third.value.after_s, str(third.value)) == (2, 2.5, "busy")
    assert later.done == 0


def yields(one: object) -> Any:
    yield one


class Counter:
    def __call__(self, one: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (7, "7 is no function"),
        (Counter, "is a class: give an object of it"),
        (yields, "yields, so calling it does nothing"),
        (lambda: None, r"takes no .*: its parameters are \(\)"),
        (lambda one, two: None, "needs more than"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_where_it_is_declared(function: Any, said: str) -> None:
    for make in (NUMBERS.each, NUMBERS.handler):
        with pytest.raises(ClientError, match=said):
            make(function)


def test_objects_and_partial_functions_are_handlers() -> None:
    def add(least: int, one: Received[Any]) -> None:
        assert one.value > least

    functions: list[Callable[..., Any]] = [Counter(), partial(add, 0)]
    for function in functions:
        assert call_handler(NUMBERS.each(function), received(b"1")).is_done


class Versioned(Serializer[bytes]):
    content_type = "application/vnd.Example.Trip; version=2"

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, body: bytes) -> bytes:
        return body


class Untyped(Versioned):
    content_type = None  # type: ignore[assignment]


def test_a_serializer_reads_what_it_has_written_whatever_its_content_type() -> None:
    trips = Topic("T", Versioned())
    given = trips.message(b"x").properties or {}
    assert given == {"content-type": "application/vnd.Example.Trip; version=2"}
    raw = "".join(f"{name}\x01{value}\x02" for name, value in given.items()).encode()
    message = MessageExt("T", 0, 0, b"x", raw, 0, 0, 0, 0, 0, b"", 0, b"", 0, "b")
    assert trips.value(message) == b"x"
    with pytest.raises(ClientError, match="content_type of Untyped is None; it must be a text"):
        Topic("T", Untyped())
