"""Planning a batch read: what bounds become, and that nothing is left out in silence."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from cometmq.errors import BrokerAway, DataLoss, RouteNotFound
from cometmq.spark.source.batch_reader import BatchReader
from cometmq.spark.source.planned_offsets import PlannedOffsets, encode
from cometmq.spark.source.topic_selection import queue_of
from spark.scripted import BORN_MS, Script, ScriptedBroker, error_of
from spark.source.scripted_readers import two_brokers


def planned(scripted: ScriptedBroker, **more: str) -> dict[str, tuple[int, int]]:
    """The ranges that are read, by topic and queue."""
    reader = BatchReader(scripted.options(**{"retryForMs": "300", **more}))
    return {
        str(one.queue): (one.begin, one.end) for part in reader.partitions() for one in part.value
    }


def test_bounds_become_offsets() -> None:
    script = Script(earliest_offsets={1: 2}).fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:

        def starts(**more: str) -> list[int]:
            found = planned(scripted, **more)
            return [found.get(f"T@broker-a/{at}", (10, 10))[0] for at in (0, 1)]

        def ends(**more: str) -> list[int]:
            found = planned(scripted, **more)
            return [found.get(f"T@broker-a/{at}", (0, 0))[1] for at in (0, 1)]

        assert starts() == starts(startingOffsets="earliest") == [0, 2]
        assert starts(startingOffsets="latest") == [10, 10]
        assert starts(startingTimestamp=str(BORN_MS + 12)) == [5, 5]
        assert starts(startingTimestamp=str(BORN_MS + 60_000)) == [10, 10]
        assert starts(startingOffsets='{"broker-a:0": 3}') == [3, 2]
        assert starts(startingOffsets='{"T": {"broker-a:0": -1, "broker-a:1": -2}}') == [10, 2]
        by_queue = json.dumps({"broker-a:0": BORN_MS + 12})
        assert starts(startingOffsetsByTimestamp=by_queue) == [5, 2]
        assert ends(endingOffsets='{"broker-a:0": 3}') == [3, 10]
        assert ends(endingTimestamp=str(BORN_MS + 12)) == [5, 5]
        assert ends(endingOffsetsByTimestamp=by_queue) == [5, 10]


def test_bounds_that_do_not_fit_the_topic_are_refused() -> None:
    script = Script(earliest_offsets={1: 6}).fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:

        def said(**more: str) -> str:
            return error_of(lambda: planned(scripted, **more))

        assert "topic T has no queue broker-a:7" in said(startingOffsets='{"broker-a:7": 3}')
        assert "topic T has no queue broker-a:7" in said(assign='{"T": ["broker-a:7"]}')
        assert "this queue ends at 10" in said(startingOffsets='{"broker-a:0": 11}')
        before = said(endingOffsets='{"broker-a:1": 5}')
        assert "the start of queue T@broker-a/1, 6, lies after its end, 5" in before
        late = said(startingOffsets='{"broker-a:0": 8}', endingOffsets='{"broker-a:0": 7}')
        assert "the start of queue T@broker-a/0, 8, lies after its end, 7" in late
        past = str(BORN_MS + 10)
        assert "lies after its end" in said(startingOffsets="latest", endingTimestamp=past)


def test_a_broker_that_is_away_is_missed_when_it_is_named() -> None:
    with two_brokers() as (first, second):
        assert planned(first, brokers="broker-a,broker-b").keys() == {
            "T@broker-a/0", "T@broker-b/0",
        }  # fmt: skip
        second.go_away()
        with pytest.raises(BrokerAway, match=r"broker broker-b is away.*topic T.*retryForMs=300"):
            planned(first, brokers="broker-a,broker-b")
        left = planned(first, brokers="broker-a,broker-b", failOnDataLoss="false")
        assert left == {"T@broker-a/0": (0, 10)}


def test_a_broker_that_is_named_need_not_have_the_topic_but_one_must() -> None:
    with two_brokers("U") as (first, _):
        assert planned(first, brokers="broker-b") == {"T@broker-a/0": (0, 10)}
        for given in ({"topic": "Typo"}, {"subscribe": "T,Typo"}):
            with pytest.raises(RouteNotFound, match="topic Typo does not exist"):
                planned(first, brokers="broker-b", **given)
        assert planned(first, brokers="broker-b", topic="Typo", failOnMissingTopic="false") == {}


def test_offsets_in_json_remember_a_broker_that_is_away() -> None:
    with two_brokers() as (first, second):
        second.go_away()
        with pytest.raises(BrokerAway, match=r"broker-b is away and queues T@broker-b/0"):
            planned(first, endingOffsets='{"broker-a:0": 5, "broker-b:0": 5}')
        with pytest.raises(BrokerAway, match=r"queues T@broker-b/0"):
            planned(first, assign='{"T": ["broker-a:0", "broker-b:0"]}')


def test_a_broker_that_dies_while_it_is_asked_is_not_forgotten() -> None:
    with two_brokers() as (first, second):
        second.script.breaks = True  # the route still has it, then no longer
        reader = BatchReader(first.options(retryForMs="600"))
        with pytest.raises(BrokerAway, match=r"broker broker-b is away and queues T@broker-b/0"):
            reader.partitions()


def test_queues_can_be_assigned_and_topics_taken_by_pattern() -> None:
    with two_brokers("U") as (first, _):
        both = {"T@broker-a/0": (0, 10), "U@broker-b/0": (0, 10)}
        assert planned(first, subscribe="T,U") == both
        assert planned(first, subscribePattern="[TU]") == both
        assert planned(first, subscribePattern="U") == {"U@broker-b/0": (0, 10)}
        assert planned(first, subscribePattern="nothing") == {}
        assert planned(first, assign='{"U": ["broker-b:0"]}') == {"U@broker-b/0": (0, 10)}
        starts = '{"T": {"broker-a:0": 3}, "U": {"broker-b:0": 4}}'
        assert planned(first, subscribe="T,U", startingOffsets=starts) == {
            "T@broker-a/0": (3, 10), "U@broker-b/0": (4, 10),
        }  # fmt: skip


def test_offsets_of_a_query_are_refused_for_a_topic_made_anew() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        before = encode(PlannedOffsets({queue_of("T", "broker-a:0"): 4}, BORN_MS + 16))
        start = json.dumps(before)
        assert planned(scripted, startingOffsets=start) == {"T@broker-a/0": (4, 10)}
        script.queues.clear()
        script.stored_later_ms = 1000
        script.fill(0, 30)
        with pytest.raises(DataLoss, match=r"queue T@broker-a/0 is not the one that was read"):
            planned(scripted, startingOffsets=start)
        anew = planned(scripted, startingOffsets=start, failOnDataLoss="false")
        assert anew == {"T@broker-a/0": (0, 30)}


def test_no_queue_is_asked_for_times_that_need_no_check() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        planned(scripted)
        counted = Counter(script.codes)
    assert counted[32] == 0
    assert counted[202] == 1


def test_partitions_of_nothing_and_rows_of_a_range() -> None:
    with ScriptedBroker(Script(queues={0: []})) as scripted:
        assert BatchReader(scripted.options()).partitions() == []
        scripted.script.fill(0, 3)
        reader = BatchReader(scripted.options(slots="1"))
        (partition,) = reader.partitions()
        assert sum(batch.num_rows for batch in reader.read(partition)) == 3


def test_a_topic_that_is_missing_may_be_empty() -> None:
    with ScriptedBroker(Script().fill(0, 3)) as scripted:
        assert planned(scripted, subscribe="T,Nowhere", failOnMissingTopic="false") == {
            "T@broker-a/0": (0, 3)
        }
        with pytest.raises(DataLoss, match="broker-a no longer has Nowhere@broker-a/0"):
            planned(scripted, assign='{"Nowhere": ["broker-a:0"]}', failOnMissingTopic="false")
