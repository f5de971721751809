"""What a queue's pulls ask for, when they wait, and what they do when its broker falls silent."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from client.scripted_broker import BROKER, TOPIC, ScriptedBroker
from client.short_delay_cluster import until
from cometmq import ConsumeFrom, FlowLimits, Message, Producer, PushConsumer
from cometmq.client.consumer import pull_request
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.model.message import MessageExt
from cometmq.model.queue import MessageQueue
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.cluster import LocalCluster

PULL = RequestCode.PULL_MESSAGE


def test_a_pull_that_is_never_answered_closes_its_own_connection(
    scripted_broker: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its broker may have no address any more, or another one, by the time the pull gives up."""
    monkeypatch.setattr(pull_request, "_RESPONSE_GRACE_S", 0.5)
    consumer = PushConsumer("g", namesrv=scripted_broker.addr, poll_suspend_s=0.5)
    consumer.subscribe(TOPIC, "*", lambda _messages: None)
    with consumer, caplog.at_level(logging.DEBUG, "cometmq.client"):
        until(lambda: scripted_broker.requests(PULL))
        session = consumer._inner._engine._session
        channel = session.pool.open_channel(session.routes.read_addr(BROKER, 0))
        session.routes._addrs.clear()  # as if no route named the broker any more
        until(lambda: channel.is_closed)
        until(lambda: "will be tried again" in caplog.text)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, (32, True, 250)),
        ({"flow": FlowLimits(count=5000)}, (32, True, 256)),
        ({"flow": FlowLimits(count=300)}, (32, True, 75)),
        ({"flow": FlowLimits(count=100)}, (32, None, None)),
        ({"flow": FlowLimits(topic_count=100)}, (32, None, None)),
        ({"pull_interval_ms": 10}, (32, None, None)),
        ({"pull_batch_size": 32}, (32, None, None)),
        ({"pull_batch_size": 7}, (7, None, None)),
        ({"pull_batch_size": 400}, (400, True, None)),
    ],
)
def test_a_pull_asks_for_more_than_brokers_usually_give_only_where_nobody_has_said_how_many(
    scripted_broker: ScriptedBroker,
    options: dict[str, object],
    asked: tuple[int, bool | None, int | None],
) -> None:
    consumer = PushConsumer("g", namesrv=scripted_broker.addr, poll_suspend_s=0.5, **options)
    consumer.subscribe(TOPIC, "*", lambda _messages: None)
    with consumer:
        until(lambda: scripted_broker.requests(PULL))
        headers = [
            PullMessageRequestHeader.decode(one.ext) for one in scripted_broker.requests(PULL)
        ]
        (own,) = [one for one in headers if one.topic == TOPIC][:1]
        assert (own.max_msg_nums, own.is_large, own.large_count) == asked


def test_large_pulls_leave_the_window_within_its_limit_and_one_usual_pull(
    cluster: LocalCluster, make_topic: Callable[..., str], group: str
) -> None:
    topic, gate, seen = make_topic(cluster, queues=1), threading.Event(), []

    def handle(messages: list[MessageExt]) -> None:
        gate.wait(20)
        seen.extend(one.queue_offset for one in messages)

    with Producer("producers", namesrv=cluster.namesrv) as producer:
        for at in range(0, 3000, 100):
            producer.send_batch([Message(topic, b"%d" % (at + n)) for n in range(100)])
    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, batch_size=8
    )
    consumer.subscribe(topic, "*", handle)
    with consumer:
        engine = consumer._inner._engine
        until(lambda: engine.stats().queues and engine.stats().queues[-1].why_not_pulled)
        until(lambda: engine.stats().topics)
        (assigned,) = [
            one for queue, one in engine._assignment.table.items() if queue.topic == topic
        ]
        assert assigned.gives_large_pulls
        assert 750 <= assigned.window.count <= 1032
        assert "flow.count is 1,000" in engine._pulls.why_not_pulled(assigned)
        gate.set()
        until(lambda: len(seen) >= 3000)
    assert sorted(seen) == list(range(3000))


def test_who_waits_for_room_goes_on_when_there_is_enough_or_after_the_time() -> None:
    async def scenario() -> None:
        assigned = AssignedQueue(MessageQueue("T", "b", 0), 0)
        fields = (b"", b"", 0, 0, 0, 0, 0, b"", 0, b"", 0, "b")
        messages = [MessageExt("T", 0, offset, *fields) for offset in range(10)]
        assigned.window.put(messages, 10)
        waits = asyncio.ensure_future(assigned.wait_for_room(4, 3600))
        await asyncio.sleep(0)
        for count in (5, 1):
            assert not waits.done()
            assigned.window.finish(assigned.window.take(count))
            assigned.note_room()
            await asyncio.sleep(0)
        await waits
        assigned.note_room()
        await assigned.wait_for_room(0, 0.001)

    asyncio.run(scenario())
