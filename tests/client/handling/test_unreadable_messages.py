"""Bodies that are not what was sent reach no handler, and hold up nothing behind them."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import send_header
from client.dead_letters import dead_letters
from client.received_messages import received
from client.short_delay_cluster import until
from cometmq import AsyncPushConsumer, LitePullConsumer, OnFailure, PushConsumer
from cometmq.client.handling.handler_call import readable_runs, unreadable_outcome
from cometmq.model.message import MessageExt, UnreadableMessage
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.testing.cluster import LocalCluster

LIMIT = 64 * 1024
BOMB = zlib.compress(b"\0" * (LIMIT + 1))
WHOLE = zlib.compress(b"w" * LIMIT)
BOMBS = 6
"""More than one pull may inflate."""


def send_bombs(cluster: LocalCluster, topic: str) -> None:
    """Bombs, then a body that inflates to the limit, then a plain one; all in one queue."""
    sent = [(BOMB, 1)] * BOMBS + [(WHOLE, 1), (b"good", 0)]
    with BlockingChannel(cluster.broker, 10.0) as channel:
        for at, (body, sys_flag) in enumerate(sent):
            pairs = {"UNIQ_KEY": f"{topic}-{at}"}
            header = send_header(topic, sys_flag=sys_flag, properties=pairs)
            assert channel.call(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_a_decompression_bomb_counts_as_a_failure_and_later_messages_are_handled(
    order: str, cluster: LocalCluster, topic: str, group: str, tmp_path: Path
) -> None:
    send_bombs(cluster, topic)
    seen: list[bytes] = []
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        order=order,
        consume_from="first",
        inflated_bytes_max=LIMIT,
        batch_size=8,
        state_dir=tmp_path,
    )
    consumer.subscribe(
        topic,
        "*",
        lambda messages: seen.extend(each.body for each in messages),
        on_failure=OnFailure.dead_letter(),
    )
    with consumer:
        until(lambda: len(seen) == 2)
        letters = dead_letters(cluster, group, BOMBS)
    assert sorted(seen) == [b"good", b"w" * LIMIT]
    assert {len(letter.body) for letter in letters} == {LIMIT + 1}  # nothing of it was changed
    assert f"larger than {LIMIT} bytes" in letters[0].properties["DLQ_REASON"]


def test_an_async_handler_gets_no_unreadable_message_either(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    send_bombs(cluster, topic)
    seen: list[bytes] = []

    async def handler(messages: list[MessageExt]) -> None:
        seen.extend(each.body for each in messages)

    async def scenario() -> None:
        settings: dict[str, Any] = {"consume_from": "first", "inflated_bytes_max": LIMIT}
        consumer = AsyncPushConsumer(group, namesrv=cluster.namesrv, **settings)
        consumer.subscribe(topic, "*", handler, on_failure=OnFailure.skip())
        async with consumer, asyncio.timeout(30):
            while len(seen) < 2:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert sorted(seen) == [b"good", b"w" * LIMIT]


def test_a_poll_returns_unreadable_messages_with_the_reason(
    cluster: LocalCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    send_bombs(cluster, topic)
    found: list[MessageExt] = []
    consumer = LitePullConsumer(
        group, namesrv=cluster.namesrv, consume_from="first", inflated_bytes_max=LIMIT
    )
    consumer.subscribe(topic, "*")
    with consumer:
        until(lambda: found.extend(consumer.poll(timeout_s=1)) or len(found) == BOMBS + 2)
    assert [bool(each.unreadable) for each in found] == [True] * BOMBS + [False, False]
    assert found[0].body == BOMB
    assert "cannot be read" in caplog.text


def message(unreadable: str = "") -> MessageExt:
    made = received(kind=UnreadableMessage if unreadable else MessageExt)
    if isinstance(made, UnreadableMessage):
        made.unreadable = unreadable
        made.is_damaged = False
    return made


def test_an_unreadable_message_is_a_batch_of_its_own() -> None:
    marks = ["", "", "x", "y", "", "z"]
    messages = [message(mark) for mark in marks]
    runs = readable_runs(messages)
    assert [[each.unreadable for each in run] for run in runs] == [
        ["", ""], ["x"], ["y"], [""], ["z"]
    ]  # fmt: skip
    assert [each for run in runs for each in run] == messages
    outcomes = [unreadable_outcome(run) for run in runs]
    assert [outcome.reason if outcome else "" for outcome in outcomes] == ["", "x", "y", "", "z"]
