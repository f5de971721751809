"""An idle stream asks brokers nothing, and is woken by messages and by whatever goes wrong."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import BrokerAway, DataLoss, QueueShrank
from cometmq.model.queue import MessageQueue
from cometmq.spark.source import arrival_watch, source_options, stream_reader
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.wire.codes import RequestCode
from spark.scripted import Script, ScriptedBroker
from spark.source.scripted_readers import queues, reader_of, remake, two_brokers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.spark.source.stream_reader import StreamReader
    from spark.live import Live

A = MessageQueue("T", "broker-a", 0)
LONG_MS = "20000"


def idle_reader(scripted: ScriptedBroker, **more: str) -> tuple[StreamReader, dict[str, Any]]:
    """A reader that has read everything, and where it is."""
    reader = reader_of(scripted, **{"idleWaitMs": "50", **more})
    at = reader.latestOffset(reader.initialOffset())
    assert reader.latestOffset(at) == at
    return reader, at


def plan(reader: StreamReader, at: dict[str, Any], times: int) -> None:
    for _ in range(times):
        reader.partitions(at, reader.latestOffset(at))


def later(action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.1, action)
    timer.start()
    return timer


def test_an_idle_stream_asks_nothing_and_sees_a_message_at_once() -> None:
    script = Script().fill(0, 10).fill(1, 5)
    with ScriptedBroker(script) as scripted:
        reader, at = idle_reader(scripted)
        before = len(script.codes)
        for _ in range(5):
            assert reader.latestOffset(at) == at
        assert len(script.codes) == before
        patient = reader_of(scripted, idleWaitMs=LONG_MS)
        assert queues(patient.initialOffset())
        timer, began = later(lambda: script.fill(1, 1)), time.monotonic()
        assert queues(patient.latestOffset(at)) == {"broker-a:0": 10, "broker-a:1": 6}
        assert time.monotonic() - began < 5
        timer.join()


def test_a_hold_that_ends_without_a_message_is_asked_again_and_wakes_nobody() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader, at = idle_reader(scripted)
        stats = script.codes.count(RequestCode.GET_TOPIC_STATS_INFO)
        script.ends_holds = True
        for _ in range(3):
            assert reader.latestOffset(at) == at
        script.ends_holds = False
        assert script.codes.count(RequestCode.GET_TOPIC_STATS_INFO) == stats
        script.fill(0, 2)
        assert queues(reader.latestOffset(at)) == {"broker-a:0": 12}


@pytest.mark.parametrize("count", [0, 4, 10, 11, 30])
def test_a_topic_made_anew_under_an_idle_stream_is_an_error(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        monkeypatch.setattr(stream_reader, "_TRUSTED_S", 0.2)
        reader, at = idle_reader(scripted)
        remake(script, count)
        with pytest.raises((DataLoss, QueueShrank), match=r"T@broker-a/0"):
            plan(reader, at, 8)


def test_a_broker_that_goes_away_under_an_idle_stream_is_an_error() -> None:
    with two_brokers() as (first, second):
        reader, at = idle_reader(first)
        second.script.registered = False
        first.script.peers.clear()
        second.script.breaks = True
        second.hang_up()
        with pytest.raises(BrokerAway, match="broker-b is away"):
            plan(reader, at, 3)


def test_a_queue_that_is_new_is_seen_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        monkeypatch.setattr(stream_reader, "_TRUSTED_S", 0.1)
        reader, at = idle_reader(scripted)
        script.fill(1, 3)
        reader._cluster()._routes._route_at = -1e9  # the routes have been kept long enough
        for _ in range(5):
            end = reader.latestOffset(at)
        assert queues(end) == {"broker-a:0": 10, "broker-a:1": 0}


def test_more_queues_than_are_watched_are_asked_for_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrival_watch, "QUEUES_MAX", 1)
    script = Script().fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:
        reader, at = idle_reader(scripted)
        before = script.codes.count(RequestCode.GET_TOPIC_STATS_INFO)
        assert reader.latestOffset(at) == at
        assert script.codes.count(RequestCode.GET_TOPIC_STATS_INFO) > before
        timer = later(lambda: script.fill(1, 1))
        patient = reader_of(scripted, idleWaitMs=LONG_MS)
        assert queues(patient.latestOffset(at)) == {"broker-a:0": 10, "broker-a:1": 11}
        timer.join()


def test_a_real_broker_wakes_the_watch_for_each_of_its_queues(live: Live) -> None:
    topic = live.make_topic("Watched", 3)
    options = source_options.parse({"namesrv": live.namesrv, "topic": topic})
    cluster = cluster_client_of(options)
    watch = cluster.arrivals
    assert watch.wait(0), "nothing is watched yet"
    for number in range(6):
        ends = {queue: at.max_offset for queue, at in cluster.positions().items()}
        assert watch.begin(ends)
        assert not watch.wait(0.02)
        live.send(topic, number % 3, [b"x"])
        assert watch.wait(10)
