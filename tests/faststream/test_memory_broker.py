"""TestCometBroker: applications without servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from faststream.exceptions import SubscriberNotFound
from faststream.specification import AsyncAPI

from cometmq.faststream import (
    CometBroker,
    CometMessage,
    CometPublisher,
    CometRoute,
    CometRouter,
    TestCometBroker,
)
from faststream import Context


def test_what_is_published_goes_to_one_subscriber_of_each_group() -> None:
    broker, seen = CometBroker(), list[tuple[str, Any]]()

    def subscribe(group: str) -> None:
        @broker.subscriber("orders", group=group)
        async def handle(body: dict[str, int]) -> None:
            seen.append((group, body))

    for group in ("a", "a", "b"):
        subscribe(group)

    async def scenario() -> None:
        async with TestCometBroker(broker) as running:
            await running.publish({"n": 1}, "orders", keys=["K"])
            await running.publish({"n": 2}, "others")

    asyncio.run(scenario())
    assert seen == [("a", {"n": 1}), ("b", {"n": 1})]


def test_mocks_see_what_handlers_get_and_publish() -> None:
    broker = CometBroker()

    @broker.subscriber("orders", expression="PAID")
    @broker.publisher("bills")
    async def book(number: int, message: CometMessage = Context()) -> str:
        assert message.raw_message.keys == ["K"]
        return f"bill {number}"

    async def scenario() -> None:
        async with TestCometBroker(broker) as running:
            await running.publish(7, "orders", tags="PAID", keys=["K"])
            await running.publish(8, "orders", tags="OPEN")
            book.mock.assert_called_once_with(7)
            reply = await running.request(9, "orders", tags="PAID", keys=["K"])
            assert await reply.decode() == "bill 9"
            with pytest.raises(SubscriberNotFound):
                await running.request(9, "nowhere")

    asyncio.run(scenario())


def test_an_error_of_a_handler_is_raised_where_the_test_published() -> None:
    broker = CometBroker()

    @broker.subscriber("orders")
    async def fail(body: Any) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with TestCometBroker(broker) as running:
            with pytest.raises(ZeroDivisionError):
                await running.publish("x", "orders")

    asyncio.run(scenario())


def test_batches_and_routers_and_their_asyncapi() -> None:
    batches: list[list[int]] = []

    async def note(numbers: list[int]) -> int:
        batches.append(numbers)
        return sum(numbers)

    router = CometRouter(
        "stall-",
        handlers=[CometRoute(note, "numbers", publishers=[CometPublisher("sums")], batch=True)],
    )
    broker = CometBroker("names:9876", routers=[router])

    async def scenario() -> None:
        async with TestCometBroker(broker) as running:
            await running.publish_batch(1, 2, 3, topic="stall-numbers")

    asyncio.run(scenario())
    assert batches == [[1, 2, 3]]
    schema = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_jsonable()
    assert {one["address"] for one in schema["channels"].values()} == {
        "stall-numbers",
        "stall-sums",
    }
    (server,) = schema["servers"].values()
    assert (server["host"], server["protocol"]) == ("names:9876", "rocketmq")


def test_without_faststream_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules.update(faststream=None, fast_depends=None)\n"
        "try: import cometmq.faststream\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "cometmq.faststream needs FastStream: pip install 'cometmq[faststream]'"
    )
