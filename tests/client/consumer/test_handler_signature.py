"""What `subscribe` takes for a handler, and the sentence for everything else."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

import cometmq
from cometmq import AsyncPushConsumer, ClientError, MessageExt, PushConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NOBODY = "127.0.0.1:1"


def nothing() -> None: ...


def two(messages: list[MessageExt], context: object) -> None: ...


def named(*, messages: list[MessageExt]) -> None: ...


def one(message: MessageExt) -> None: ...


def one_by_module(message: cometmq.MessageExt) -> None: ...


def generator(messages: list[MessageExt]) -> Iterator[None]:
    yield


async def async_generator(messages: list[MessageExt]) -> AsyncIterator[None]:
    yield


class Listener:
    def consume(self, messages: list[MessageExt]) -> None: ...

    def __call__(self, messages: list[MessageExt], timeout_s: float = 1.0) -> None: ...


WRONG: list[tuple[Any, str]] = [
    (nothing, "takes no list of messages: its parameters are ()"),
    (two, "needs more than a list of messages: its parameters are (messages, context)"),
    (named, "takes no list of messages: its parameters are (*, messages)"),
    (Listener.consume, "its parameters are (self, messages)"),
    (one, "takes a list of messages, of which each is"),
    (one_by_module, "takes a list of messages, of which each is"),
    (generator, "yields, so calling it does nothing"),
    (async_generator, "yields, so calling it does nothing"),
    (Listener, "is a class: give an object of it"),
]


@pytest.mark.parametrize("consumer", [PushConsumer, AsyncPushConsumer])
@pytest.mark.parametrize(("handler", "said"), WRONG)
def test_a_handler_that_cannot_be_called_is_refused(consumer, handler, said):
    with pytest.raises(ClientError, match="subscribe to T: the handler ") as caught:
        consumer("group", namesrv=NOBODY).subscribe("T", "*", handler)
    assert said in str(caught.value)


async def in_a_task(messages: list[MessageExt]) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        print,
        in_a_task,
        Listener(),
        Listener().consume,
        functools.partial(two, context=1),
        lambda *messages: None,
        [].append,
        lambda messages, limit=3: None,
    ],
)
def test_all_that_takes_a_list_is_a_handler(handler):
    PushConsumer("group", namesrv=NOBODY).subscribe("T", "*", handler)


def test_an_async_handler_does_not_go_into_processes():
    consumer = PushConsumer("group", namesrv=NOBODY, workers="process")
    with pytest.raises(ClientError, match=r"the handler of T is async, .* a plain function"):
        consumer.subscribe("T", "*", in_a_task)
