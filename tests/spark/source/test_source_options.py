"""Options: what text means, and the one sentence said when it means nothing."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from cometmq.spark.source import columns
from cometmq.spark.source import source_options as options
from cometmq.spark.source.source_options import OffsetBound, SourceOptions
from spark.scripted import error_of

GOOD = {"namesrv": "127.0.0.1:9876", "topic": "T"}


def parsed(**more: str) -> SourceOptions:
    return options.parse({**GOOD, **more})


def test_defaults() -> None:
    found = parsed()
    assert found.namesrv == ("127.0.0.1:9876",)
    assert (found.topic, found.tags, found.group) == ("T", "*", "cometmq_spark")
    assert found.starting is found.ending is None
    assert found.max_offsets == 400_000
    assert found.columns == columns.DEFAULT
    assert found.fail_on_data_loss
    assert pickle.loads(pickle.dumps(found)) == found


def test_names_are_read_in_any_case_and_several_name_servers_in_both_spellings() -> None:
    found = options.parse(
        {"NAMESRV": "a:1;b:2, [::1]:3", "Topic": "T", "maxoffsetspertrigger": "0"}
    )
    assert found.namesrv == ("a:1", "b:2", "[::1]:3")
    assert found.max_offsets is None


def test_name_servers_come_from_the_environment_when_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert options.parse({"topic": "T"}).namesrv == ("ns:9876",)


def test_slots_follow_our_session_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(options.SLOTS_VARIABLE, "5")
    assert parsed().slots == 5
    assert parsed(slots="3").slots == 3
    monkeypatch.setenv(options.SLOTS_VARIABLE, "none")
    assert 1 <= parsed().slots <= 8


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", OffsetBound("earliest")),
        ("Latest", OffsetBound("latest")),
        ("1700000000123", OffsetBound("time", 1_700_000_000_123)),
        ("2013-01-01T00:00:00Z", OffsetBound("time", 1_356_998_400_000)),
        ("2013-01-01T01:00:00+01:00", OffsetBound("time", 1_356_998_400_000)),
        ("2013-01-01", OffsetBound("time", 1_356_998_400_000)),
        ('{"b:1": -1, "b:0": 7}', OffsetBound("exact", offsets=(("b:0", 7), ("b:1", -1)))),
    ],
)
def test_where_to_start(text: str, bound: OffsetBound) -> None:
    assert parsed(startingOffsets=text).starting == bound
    assert parsed(endingOffsets=text).ending == bound


def test_columns_come_in_the_order_of_the_schema() -> None:
    assert parsed(columns="body, topic").columns == ("topic", "body")
    assert parsed(columns="body", includeProperties="true").columns == ("body", "properties")
    assert parsed(includeProperties="TRUE").columns == tuple(
        name for name in columns.DDL_TYPES if name not in {"sharding_key", "phy_offset"}
    )


def test_times_are_utc_whatever_the_machine_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    noon = datetime(2013, 6, 1, 12, tzinfo=UTC)
    bound = parsed(startingOffsets="2013-06-01T12:00:00").starting
    assert bound == OffsetBound("time", round(noon.timestamp() * 1000))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"topics": "T"}, "no option topics: did you mean topic"),
        ({"startingOffset": "earliest"}, "no option startingoffset: did you mean startingOffsets"),
        ({"xyzzy": "1"}, "no option xyzzy: known are namesrv, topic"),
        ({"topic": " "}, "needs the option topic"),
        ({"namesrv": "localhost"}, "'localhost', which is no host:port"),
        ({"namesrv": "localhost:0"}, "'localhost:0', which is no host:port"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first': write earliest, latest"),
        ({"endingOffsets": "{oops"}, "endingOffsets is no map of offsets"),
        ({"startingOffsets": '{"b": 1}'}, "write it as broker:queueId"),
        ({"startingOffsets": '{"b:0": -3}'}, "gives b:0 the offset -3"),
        ({"startingOffsets": '{"b:0": true}'}, "gives b:0 the offset True"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is 'many', not a whole number"),
        ({"slots": "0"}, "slots is '0', not a whole number from 1 up"),
        ({"columns": "body,tag"}, "names tag, which is no column: did you mean tags"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no': write true or false"),
    ],
)
def test_an_error_is_one_sentence(more: dict[str, str], sentence: str) -> None:
    said = error_of(lambda: parsed(**more))
    assert sentence in said
    assert "\n" not in said


def test_a_missing_name_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert "needs the option namesrv" in error_of(lambda: options.parse({"topic": "T"}))
