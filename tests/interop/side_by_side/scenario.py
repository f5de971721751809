"""Everything our own client asks of a broker, for the recording proxy to listen to."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cometmq import (
    Admin,
    BrokerError,
    ConsumeFrom,
    Message,
    MessageExt,
    MessageSelector,
    Producer,
    PushConsumer,
    RetryLater,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "Scenario"


def run(namesrv: str) -> dict[str, str]:
    """What each step came to."""
    said: dict[str, str] = {}

    def say(name: str, step: Callable[[], object]) -> None:
        try:
            said[name] = str(step())
        except Exception as error:  # noqa: BLE001  every broker's refusal is a result here
            said[name] = type(error).__name__

    with Admin(namesrv=namesrv) as admin, Producer("scenario-python", namesrv=namesrv) as producer:
        say("create topic", lambda: admin.create_topic(TOPIC, queues=4))
        time.sleep(1.5)
        _send(producer, say)
        time.sleep(1.0)
        say("push", lambda: _consume(namesrv, "scenario-push", 8, refuse_first=True))
        say("orderly", lambda: _consume(namesrv, "scenario-orderly", 8, orderly=True))
        say("SQL", lambda: _sql(namesrv))
        say("clusters", lambda: len(admin.clusters().broker_addr_table))
        say("topics", lambda: TOPIC in admin.topics())
        say("queues", lambda: len(admin.queues(TOPIC)))
        say("topic stats", lambda: len(admin.topic_stats(TOPIC)))
        say("group offsets", lambda: len(admin.group_offsets("scenario-push", TOPIC)))
        say("consume stats", lambda: len(admin.consume_stats("scenario-push", TOPIC)))
        offsets = dict.fromkeys(admin.queues(TOPIC), 0)
        say("set offsets", lambda: admin.set_group_offsets("scenario-reset", offsets))
    return said


def _send(producer: Producer, say: Callable[[str, Callable[[], object]], None]) -> None:
    def message(topic: str = TOPIC, **more: object) -> Message:
        return Message(topic, b"body", tags="A", keys="k1", **more)  # type: ignore[arg-type]

    say("send", lambda: producer.send(message()).status)
    say("send by key", lambda: producer.send(message(sharding_key="s")).status)
    say("send to a new topic", lambda: producer.send(message("ScenarioNew")).status)
    say("send one-way", lambda: producer.send_oneway(message()))
    say("send async", lambda: producer.send_async(message()).result(10).status)
    say("send batch", lambda: len(producer.send_batch([message() for _ in range(3)])))
    say("send many", lambda: len(producer.send_many([message() for _ in range(5)])))
    say("send delayed", lambda: producer.send(message(delay_level=1)).status)
    say("send large", lambda: producer.send(Message(TOPIC, b"x" * 10_000, tags="A")).status)
    say("queues", lambda: len(producer.queues(TOPIC)))


def _consume(
    namesrv: str, group: str, count: int, *, refuse_first: bool = False, orderly: bool = False
) -> bool:
    complete, seen = threading.Event(), [0, 0]

    def handle(messages: Sequence[MessageExt]) -> None:
        if refuse_first and seen[1] == 0:
            seen[1] = 1
            raise RetryLater(delay_level=1)
        seen[0] += len(messages)
        if seen[0] >= count:
            complete.set()

    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST, orderly=orderly)
    consumer.subscribe(TOPIC, "A || B || C", handle)
    with consumer:
        came = complete.wait(60)
        time.sleep(6.0)
    return came


def _sql(namesrv: str) -> str:
    consumer = PushConsumer("scenario-sql", namesrv=namesrv)
    consumer.subscribe(TOPIC, MessageSelector.by_sql("a > 1"), lambda _: None)
    try:
        with consumer:
            return "started"
    except BrokerError as error:
        return f"code {error.code}"
