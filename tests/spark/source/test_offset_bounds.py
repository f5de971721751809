"""Where a read starts and ends, as the options say it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from cometmq.model.queue import MessageQueue
from cometmq.spark.source import source_options
from cometmq.spark.source.offset_bounds import OffsetBound
from cometmq.spark.source.planned_offsets import PlannedOffsets, encode
from spark.scripted import error_of

B0, B1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
U0 = MessageQueue("U", "b", 0)


def parsed(**more: str) -> source_options.SourceOptions:
    given = {"namesrv": "127.0.0.1:9876", **more}
    return source_options.parse(given if "subscribe" in more else {"topic": "T", **given})


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", OffsetBound("earliest")),
        ("Latest", OffsetBound("latest")),
        ('{"b:1": -1, "b:0": 7}', OffsetBound("offsets", numbers=((B0, 7), (B1, -1)))),
        ('{"T": {"b:1": -2}}', OffsetBound("offsets", numbers=((B1, -2),))),
    ],
)
def test_a_bound_is_a_word_or_offsets(text: str, bound: OffsetBound) -> None:
    assert parsed(startingOffsets=text).starting == bound
    assert parsed(endingOffsets=text).ending == bound


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2013-01-01T00:00:00Z", 1_356_998_400_000),
        ("2013-01-01T01:00:00+01:00", 1_356_998_400_000),
        ("2013-01-01", 1_356_998_400_000),
    ],
)
def test_a_bound_is_a_time(text: str, time_ms: int) -> None:
    assert parsed(startingTimestamp=text).starting == OffsetBound("time", time_ms)
    assert parsed(endingTimestamp=text).ending == OffsetBound("time", time_ms)


def test_a_bound_is_a_time_for_each_queue() -> None:
    found = parsed(subscribe="T,U", startingOffsetsByTimestamp='{"U": {"b:0": 17}}')
    assert found.starting == OffsetBound("times", numbers=((U0, 17),))


def test_times_are_utc_whatever_the_machine_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    noon = datetime(2013, 6, 1, 12, tzinfo=UTC)
    bound = parsed(startingTimestamp="2013-06-01T12:00:00").starting
    assert bound == OffsetBound("time", round(noon.timestamp() * 1000))


def test_a_time_in_starting_offsets_still_works_and_names_the_new_word() -> None:
    with pytest.warns(FutureWarning, match="write it as startingTimestamp"):
        assert parsed(startingOffsets="17").starting == OffsetBound("time", 17)
    with pytest.warns(FutureWarning, match="write it as endingTimestamp"):
        assert parsed(endingOffsets="2013-01-01").ending == OffsetBound("time", 1_356_998_400_000)


def test_offsets_as_progress_shows_them_keep_their_time() -> None:
    text = json.dumps(encode(PlannedOffsets({B0: 3}, 99)))
    bound = parsed(startingOffsets=text).starting
    assert bound == OffsetBound("offsets", numbers=((B0, 3),), last_store_ms=99)


def test_a_start_in_the_future_is_refused_or_means_the_end() -> None:
    later_ms = time.time_ns() // 1_000_000 + 3_600_000
    said = error_of(lambda: parsed(startingTimestamp=str(later_ms)))
    assert "lies in the future" in said
    assert "startingOffsetsByTimestampStrategy=latest" in said
    by_queue = json.dumps({"b:0": later_ms, "b:1": 5})
    assert "in the future" in error_of(lambda: parsed(startingOffsetsByTimestamp=by_queue))
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert parsed(startingTimestamp=str(later_ms), **latest).starting == OffsetBound("latest")
    capped = parsed(startingOffsetsByTimestamp=by_queue, **latest).starting
    assert capped is not None
    assert dict(capped.numbers)[B1] == 5
    assert dict(capped.numbers)[B0] < later_ms
    assert parsed(startingTimestamp="5", **latest).starting == OffsetBound("time", 5)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"startingOffsets": "first"}, "startingOffsets is 'first': write earliest, latest"),
        ({"endingTimestamp": "first"}, "endingTimestamp is 'first': write a time"),
        ({"endingOffsets": "{oops"}, "endingOffsets cannot be read"),
        ({"startingOffsets": '{"b": 1}'}, "write it as broker:queueId"),
        ({"startingOffsets": '{"b:0": -3}'}, "gives b:0 of topic T the number -3"),
        ({"startingOffsets": '{"b:0": true}'}, "gives b:0 of topic T the number True"),
        ({"startingOffsetsByTimestamp": '{"b:0": -1}'}, "gives b:0 of topic T the number -1"),
        ({"startingOffsets": '{"U": {"b:0": 1}}'}, "but what is read is topic T"),
        ({"startingOffsets": '{"b:0": 1}', "subscribe": "T,U"}, "stands under no topic"),
        ({"startingOffsets": '{"version": 3}'}, "written by another release"),
        ({"startingOffsets": '{"version": 2}'}, "offsets of version 2 need topics"),
        ({"startingTimestamp": "1700000000000000000"}, "(milliseconds since 1970?) lies in the"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "exclude each other"),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, "lies after its end"),
        ({"startingOffsets": "latest", "endingOffsets": "earliest"}, "lies after its end"),
        ({"startingOffsetsByTimestampStrategy": "last"}, "is 'last': write error or latest"),
    ],
)
def test_an_error_is_one_sentence(more: dict[str, str], sentence: str) -> None:
    said = error_of(lambda: parsed(**more))
    assert sentence in said
    assert "\n" not in said
