"""Planning a stream: nothing is lost in silence, limits hold, checkpoints of before are read on."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from cometmq.errors import BrokerAway, DataLoss, QueueShrank, SettingsError
from cometmq.spark.source import stream_reader
from cometmq.spark.source.stream_reader import RefusedStreamReader, StreamReader
from spark.scripted import BORN_MS, Script, ScriptedBroker, error_of, forget_clients
from spark.source.scripted_readers import queues, reader_of, remake, two_brokers

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


def ranges(partitions: list[InputPartition]) -> list[tuple[str, int, int]]:
    return [(str(one.queue), one.begin, one.end) for part in partitions for one in part.value]


def test_a_stream_waits_a_moment_for_messages_and_says_when_a_queue_shrank(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = StreamReader(scripted.options(idleWaitMs="200", startingOffsets="latest"))
        first = reader.initialOffset()
        assert first == reader.initialOffset()
        assert queues(first) == {"broker-a:0": 10}
        assert reader.latestOffset(first) == first
        script.fill(0, 5)
        assert queues(reader.latestOffset(first)) == {"broker-a:0": 15}
        assert queues(reader.reportLatestOffset() or {}) == {"broker-a:0": 15}
        del script.queues[0][8:]
        strict = StreamReader(scripted.options(retryForMs="100"))
        assert "ends at 8, but was read up to 10" in error_of(lambda: strict.latestOffset(first))
        lenient = StreamReader(scripted.options(failOnDataLoss="false", idleWaitMs="0"))
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            assert lenient.latestOffset(first) == first
            assert lenient.latestOffset(first) == first
        assert caplog.text.count("ends at 8, but was read up to 10") == 1


def test_a_run_does_not_end_well_while_a_queue_of_the_checkpoint_could_not_be_asked() -> None:
    with two_brokers() as (first, second):
        start = reader_of(first).initialOffset()
        second.go_away()
        fresh = reader_of(first)
        fresh.prepareForTriggerAvailableNow()
        with pytest.raises(BrokerAway, match=r"broker-b is away and queues T@broker-b/0 cannot"):
            fresh.latestOffset(start)
        second.script.registered = True
        assert queues(fresh.latestOffset(start)) == {"broker-a:0": 10, "broker-b:0": 10}


def test_without_fail_on_data_loss_a_broker_that_is_away_is_reported_once_and_read_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with two_brokers() as (first, second):
        reader = reader_of(first, failOnDataLoss="false")
        start = reader.initialOffset()
        second.go_away()
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            end = reader.latestOffset(start)
            assert queues(end) == {"broker-a:0": 10, "broker-b:0": 0}
            assert reader.latestOffset(end) == end
        assert caplog.text.count("broker-b is away") == 1
        second.script.registered = True
        reader._cluster().reset()
        assert queues(reader.latestOffset(end)) == {"broker-a:0": 10, "broker-b:0": 10}


def test_a_broker_that_is_away_is_not_taken_for_one_that_has_lost_its_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with two_brokers() as (first, second):
        reader = reader_of(first, failOnDataLoss="false")
        end = reader.latestOffset(reader.initialOffset())
        assert queues(end) == {"broker-a:0": 10, "broker-b:0": 10}
        second.go_away()
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            assert reader.latestOffset(end) == end
        assert caplog.text.count("broker-b is away") == 1
        assert "no longer there" not in caplog.text


def test_a_topic_that_its_broker_no_longer_has_is_an_error() -> None:
    with two_brokers() as (first, second):
        start = reader_of(first).initialOffset()
        second.script.topic = "Other"
        forget_clients()
        with pytest.raises(QueueShrank, match=r"broker broker-b no longer has T@broker-b/0"):
            reader_of(first).latestOffset(start)


def test_a_topic_with_fewer_queues_goes_on_when_the_others_were_read() -> None:
    script = Script().fill(0, 5).fill(1, 5)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted)
        end = reader.latestOffset(reader.initialOffset())
        kept = script.queues.pop(1)
        with pytest.raises(
            QueueShrank, match="T@broker-a/1 is no longer there, but was read up to 5"
        ):
            reader_of(scripted).latestOffset(end)
        script.beyond = {1: kept}
        assert reader_of(scripted).latestOffset(end) == end


@pytest.mark.parametrize("count", [10, 11, 30])
def test_a_topic_made_anew_that_outgrew_the_old_offsets_is_an_error(count: int) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted)
        done = reader.latestOffset(reader.initialOffset())
        assert done["lastStoreTime"] == BORN_MS + 16
        remake(script, count)

        def next_batch() -> None:
            again = reader_of(scripted)
            again.partitions(done, again.latestOffset(done))

        with pytest.raises(DataLoss, match=r"queue T@broker-a/0 is not the one that was read"):
            next_batch()


def test_a_batch_that_was_planned_is_not_replayed_over_a_topic_made_anew() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted)
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert ranges(reader.partitions(start, end)) == [("T@broker-a/0", 0, 10)]
        remake(script, 30)
        with pytest.raises(DataLoss, match="what lay before offset 10 was stored until 2023-11-14"):
            reader.partitions(start, end)


def test_without_fail_on_data_loss_a_topic_made_anew_is_read_from_its_first_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, failOnDataLoss="false")
        done = reader.latestOffset(reader.initialOffset())
        remake(script, 30)
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            planned = reader.partitions(done, reader.latestOffset(done))
        assert ranges(planned) == [("T@broker-a/0", 0, 30)]
    assert "it is read from 0 on" in caplog.text


def test_without_fail_on_data_loss_a_topic_made_anew_is_read_whole_while_it_is_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script().fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, failOnDataLoss="false")
        done = reader.latestOffset(reader.initialOffset())
        remake(script, 4)
        script.fill(1, 12)
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            entered = reader.latestOffset(done)
        assert queues(entered) == {"broker-a:0": 0, "broker-a:1": 12}
        assert ranges(reader.partitions(done, entered)) == [("T@broker-a/1", 0, 12)]
        script.fill(0, 20)
        end = reader.latestOffset(entered)
        assert ranges(reader.partitions(entered, end)) == [("T@broker-a/0", 0, 24)]
        assert caplog.text.count("queue T@broker-a/0 is not the one that was read") == 1


@pytest.mark.parametrize("count", [4, 10, 30])
def test_without_fail_on_data_loss_a_batch_planned_before_a_topic_was_made_anew_reads_none_of_it(
    count: int,
) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, failOnDataLoss="false")
        done = reader.initialOffset()
        end = reader.latestOffset(done)
        remake(script, count)
        assert reader.partitions(done, end) == []
        found = []
        while end != done:
            done, end = end, reader.latestOffset(end)
            found += ranges(reader.partitions(done, end))
        assert found == [("T@broker-a/0", 0, count)]


def test_retention_and_clocks_that_were_set_back_are_no_topic_made_anew() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted)
        done = reader.latestOffset(reader.initialOffset())
        script.fill(0, 20)
        script.earliest_offsets[0] = 10
        end = reader.latestOffset(done)
        assert ranges(reader.partitions(done, end)) == [("T@broker-a/0", 10, 30)]
        script.earliest_offsets[0] = 3
        script.stored_ms[0, 9] = done["lastStoreTime"] + 5000
        assert ranges(reader.partitions(done, end)) == [("T@broker-a/0", 10, 30)]


def test_a_checkpoint_of_the_first_version_is_read_on() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted)
        end = reader.latestOffset({"broker-a:0": 4})
        assert queues(end) == {"broker-a:0": 10}
        assert ranges(reader.partitions({"broker-a:0": 4}, end)) == [("T@broker-a/0", 4, 10)]
        assert json.dumps(reader.latestOffset(end)) == json.dumps(end)
        several = reader_of(scripted, subscribe="T,U", failOnMissingTopic="false")
        said = error_of(lambda: several.latestOffset({"broker-a:0": 4}))
        assert "this checkpoint cannot be read on" in said
        with pytest.raises(SettingsError, match="has read queue T@broker-a/0, but the query reads"):
            reader_of(scripted, topic="U").latestOffset(end)


def test_more_topics_can_be_subscribed_later_and_are_read_from_their_first_message() -> None:
    with two_brokers("U") as (first, _):
        one = reader_of(first)
        end = one.latestOffset(one.initialOffset())
        both = reader_of(first, subscribe="T,U")
        entered = both.latestOffset(end)
        assert entered["topics"] == {"T": {"broker-a:0": 10}, "U": {"broker-b:0": 0}}
        read = both.latestOffset(entered)
        assert read["topics"] == {"T": {"broker-a:0": 10}, "U": {"broker-b:0": 10}}


def test_a_topic_that_a_pattern_matches_later_is_read_from_its_first_message() -> None:
    with two_brokers("U") as (first, second):
        second.go_away()
        end = reader_of(first, subscribePattern="[TU]").latestOffset()
        assert end["topics"] == {"T": {"broker-a:0": 10}}
        second.script.registered = True
        forget_clients()
        reader = reader_of(first, subscribePattern="[TU]")
        entered = reader.latestOffset(end)
        assert entered["topics"] == {"T": {"broker-a:0": 10}, "U": {"broker-b:0": 0}}
        assert reader.latestOffset(entered)["topics"]["U"] == {"broker-b:0": 10}


def test_a_batch_has_no_more_than_its_limits() -> None:
    with ScriptedBroker(Script().fill(0, 100, body=b"x" * 900)) as scripted:
        reader = reader_of(scripted)
        first = reader.initialOffset()
        assert queues(reader.latestOffset(first, ReadMaxRows(30))) == {"broker-a:0": 30}
        assert queues(reader.latestOffset(first, ReadAllAvailable())) == {"broker-a:0": 100}
        small = reader_of(scripted, maxBytesPerTrigger="20000", maxOffsetsPerTrigger="0")
        limit = small.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxBytes)
        assert 18 <= queues(small.latestOffset(first, limit))["broker-a:0"] <= 20
        assert queues(small.latestOffset(first, ReadAllAvailable())) == {"broker-a:0": 100}
        both = reader_of(scripted, maxBytesPerTrigger="20000", maxOffsetsPerTrigger="5")
        limit = both.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows)
        assert queues(both.latestOffset(first, limit)) == {"broker-a:0": 5}


def test_a_batch_waits_for_enough_messages_but_not_for_ever_and_never_in_a_bounded_run() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, minOffsetsPerTrigger="20")
        first = reader.latestOffset(reader.initialOffset())
        assert queues(first) == {"broker-a:0": 10}  # the first batch of a run never waits
        script.fill(0, 15)
        assert reader.latestOffset(first) == first
        script.fill(0, 5)
        assert queues(reader.latestOffset(first)) == {"broker-a:0": 30}
        hasty = reader_of(scripted, minOffsetsPerTrigger="20", maxTriggerDelay="0ms")
        at = hasty.latestOffset(hasty.initialOffset())
        script.fill(0, 1)
        assert queues(hasty.latestOffset(at)) == {"broker-a:0": 31}
        script.fill(0, 1)
        reader.prepareForTriggerAvailableNow()
        assert queues(reader.latestOffset(first)) == {"broker-a:0": 32}


def test_a_batch_that_waits_for_enough_messages_does_not_ask_brokers_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, minOffsetsPerTrigger="20", idleWaitMs="150")
        first = reader.latestOffset(reader.initialOffset())
        script.fill(0, 5)
        pauses: list[float] = []
        monkeypatch.setattr(stream_reader.time, "sleep", pauses.append)
        for _ in range(3):
            assert reader.latestOffset(first) == first
        assert pauses == [0.15] * 3


def test_offsets_are_committed_once_their_batch_is_complete() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, commitOffsets="true", group="report")
        end = reader.latestOffset(reader.initialOffset())
        assert script.committed == {0: 0}
        reader.latestOffset(end)
        assert script.committed == {0: 10}
        before = script.codes.count(15)
        reader.latestOffset(end)
        assert script.codes.count(15) == before == 2


def test_first_commits_are_kept_by_a_broker_that_forgets_one_of_two_at_once() -> None:
    script = Script().fill(0, 10).fill(1, 20).fill(2, 30)
    with ScriptedBroker(script) as scripted:
        reader = reader_of(scripted, commitOffsets="true", group="report")
        end = reader.latestOffset(reader.initialOffset())
        assert script.committed == {0: 0, 1: 0, 2: 0}
        reader.latestOffset(end)
        assert script.committed == {0: 10, 1: 20, 2: 30}


def test_an_option_that_is_wrong_for_a_stream_is_raised_by_the_first_hook() -> None:
    refused = RefusedStreamReader(SettingsError("no end"))
    for hook in (refused.initialOffset, refused.latestOffset, refused.partitions):
        assert error_of(hook) == "no end"
