"""Reading ranges over a socket: every message once and in order, whatever the broker does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import BrokerError, ConnectFailed, DataLoss, RouteNotFound
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.source.pull import PULLS_IN_FLIGHT_MAX, pull_range
from cometmq.spark.source.reader import StreamReader, read_batches
from spark.scripted import Script, ScriptedBroker, error_of

if TYPE_CHECKING:
    from cometmq.spark.source.source_options import SourceOptions


def offsets_of(options: SourceOptions, *ranges: OffsetRange) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for batch in read_batches(options, ranges):
        found += zip(batch["queue_id"].to_pylist(), batch["queue_offset"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("pull_max", [1, 8, 32, 5000])
def test_a_range_comes_whole_and_in_order_however_little_a_pull_brings(pull_max: int) -> None:
    script = Script(pull_max=pull_max).fill(0, 700).fill(1, 10)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(
            scripted.options(),
            OffsetRange("broker-a", 0, 13, 650),
            OffsetRange("broker-a", 1, 0, 9),
        )
    assert found == [(0, at) for at in range(13, 650)] + [(1, at) for at in range(9)]


def test_no_more_pulls_than_needed_once_the_size_of_an_answer_is_known() -> None:
    script = Script(pull_max=32).fill(0, 3200)
    with ScriptedBroker(script) as scripted:
        assert len(offsets_of(scripted.options(), OffsetRange("broker-a", 0, 0, 3200))) == 3200
    assert script.pulls <= 3200 / 32 * 1.2


@pytest.mark.parametrize("scan_max", [3, 40, 800])
def test_tags_are_filtered_by_the_broker_and_nothing_comes_twice(scan_max: int) -> None:
    script = Script(scan_max=scan_max)
    script.tags = {(0, at): "rare" if at % 97 == 0 else "often" for at in range(2000)}
    script.fill(0, 2000)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(
            scripted.options(tags="rare || none"), OffsetRange("broker-a", 0, 1, 1999)
        )
    assert found == [(0, at) for at in range(97, 1999, 97)]


def test_a_connection_that_breaks_again_and_again_loses_and_repeats_nothing() -> None:
    script = Script(break_after_pulls=13).fill(0, 900)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(scripted.options(), OffsetRange("broker-a", 0, 0, 900))
    assert found == [(0, at) for at in range(900)]
    assert script.codes.count(105) >= 3


def test_a_reader_that_stops_early_leaves_no_response_unread() -> None:
    script = Script().fill(0, 2000)
    with ScriptedBroker(script) as scripted:
        cluster = cluster_client_of(scripted.options())
        next(pull_range(cluster, OffsetRange("broker-a", 0, 0, 2000)))
        assert cluster.latest_offsets() == {"broker-a:0": 2000}
        assert not cluster.channel("broker-a")._answers
        assert not cluster.channel("broker-a")._wanted
        assert script.pulls <= PULLS_IN_FLIGHT_MAX + 1


def test_messages_deleted_by_the_broker_are_an_error_or_are_skipped_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(earliest_offsets={0: 40}).fill(0, 100)
    whole = OffsetRange("broker-a", 0, 10, 100)
    with ScriptedBroker(script) as scripted:
        said = error_of(lambda: offsets_of(scripted.options(), whole))
        assert "queue broker-a:0 of topic T no longer holds the messages from 10 up to 40" in said
        assert "failOnDataLoss=false" in said
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            found = offsets_of(scripted.options(failOnDataLoss="false"), whole)
    assert found == [(0, at) for at in range(40, 100)]
    assert "from 10 up to 40" in caplog.text


def test_a_queue_that_ends_too_early_is_waited_for_then_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script().fill(0, 50)
    whole = OffsetRange("broker-a", 0, 0, 60)
    with ScriptedBroker(script) as scripted:
        with pytest.raises(DataLoss, match="ends at 50, but messages up to 60 were planned"):
            offsets_of(scripted.options(retryForMs="300"), whole)
        patient = read_batches(scripted.options(), [whole])
        script.fill(0, 10)
        assert sum(batch.num_rows for batch in patient) == 60
        kept = offsets_of(
            scripted.options(retryForMs="300", failOnDataLoss="false"), whole._replace(end=70)
        )
    assert kept == [(0, at) for at in range(60)]
    assert "the rest is left out" in caplog.text


def test_a_topic_that_does_not_exist_is_one_sentence() -> None:
    with ScriptedBroker(Script().fill(0, 1)) as scripted:
        options = scripted.options(topic="Nowhere", retryForMs="100")
        with pytest.raises(
            RouteNotFound, match="topic Nowhere does not exist: the name server 127"
        ):
            cluster_client_of(options).latest_offsets()
        assert (
            cluster_client_of(
                scripted.options(topic="Nowhere", failOnMissingTopic="false")
            ).latest_offsets()
            == {}
        )


def test_a_topic_that_may_not_be_read_is_one_sentence() -> None:
    with (
        ScriptedBroker(Script(perm=2).fill(0, 1)) as scripted,
        pytest.raises(BrokerError, match="not be read"),
    ):
        cluster_client_of(scripted.options()).latest_offsets()


def test_a_name_server_that_is_away_is_one_sentence_and_the_next_one_is_asked() -> None:
    with ScriptedBroker(Script().fill(0, 3)) as scripted:
        options = scripted.options(namesrv=f"127.0.0.1:1;{scripted.addr}")
        assert cluster_client_of(options).latest_offsets() == {"broker-a:0": 3}
        away = scripted.options(namesrv="127.0.0.1:1", retryForMs="0")
        with pytest.raises(ConnectFailed, match=r"no connection to 127\.0\.0\.1:1"):
            cluster_client_of(away).latest_offsets()


def test_a_topic_of_thousands_of_queues_is_asked_for_its_ends() -> None:
    script = Script(queues={at: [] for at in range(2500)})
    with ScriptedBroker(script) as scripted:
        assert len(cluster_client_of(scripted.options()).latest_offsets()) == 2500


def test_bounds_become_offsets() -> None:
    script = Script(earliest_offsets={1: 2}).fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:

        def resolved(text: str, left_out: str = "earliest") -> dict[str, int]:
            options = scripted.options(startingOffsets=text)
            assert options.starting is not None
            return cluster_client_of(options).resolve(options.starting, left_out)

        assert resolved("earliest") == {"broker-a:0": 0, "broker-a:1": 2}
        assert resolved("latest") == {"broker-a:0": 10, "broker-a:1": 10}
        assert resolved("1700000000012") == {"broker-a:0": 5, "broker-a:1": 5}
        assert resolved('{"broker-a:0": 3}') == {"broker-a:0": 3, "broker-a:1": 2}
        assert resolved('{"broker-a:0": -1}', "latest") == {"broker-a:0": 10, "broker-a:1": 10}
        assert resolved('{"broker-a:1": -2}') == {"broker-a:0": 0, "broker-a:1": 2}
        assert "broker-a:7 is no queue" in error_of(lambda: resolved('{"broker-a:7": 3}'))
        assert "broker-a:0 ends at 10" in error_of(lambda: resolved('{"broker-a:0": 11}'))


def test_a_stream_waits_a_moment_for_messages_and_says_when_a_queue_shrank() -> None:
    script = Script().fill(0, 10)
    with ScriptedBroker(script) as scripted:
        reader = StreamReader(scripted.options(idleWaitMs="200", startingOffsets="latest"))
        first = reader.initialOffset()
        assert first == reader.initialOffset() == {"broker-a:0": 10}
        assert reader.latestOffset(first) == first
        script.fill(0, 5)
        assert reader.latestOffset(first) == {"broker-a:0": 15}
        assert reader.reportLatestOffset() == {"broker-a:0": 15}
        del script.queues[0][8:]
        strict = StreamReader(scripted.options(retryForMs="100"))
        assert "ends at 8, but was read up to 10" in error_of(lambda: strict.latestOffset(first))
        lenient = StreamReader(scripted.options(failOnDataLoss="false", idleWaitMs="0"))
        assert lenient.latestOffset(first) == first
