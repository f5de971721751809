"""Options: what text means, and the one sentence said when it means nothing."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.spark.source import columns
from cometmq.spark.source import source_options as options
from spark.scripted import error_of

if TYPE_CHECKING:
    from cometmq.spark.source.source_options import SourceOptions

GOOD = {"namesrv": "127.0.0.1:9876", "topic": "T"}


def parsed(**more: str) -> SourceOptions:
    return options.parse({**GOOD, **more})


def test_what_is_not_given_has_its_default() -> None:
    found = parsed()
    assert found.namesrv == ("127.0.0.1:9876",)
    assert found.selection.only_topic == "T"
    assert (found.tags, found.sql, found.group) == ("*", "", "cometmq_spark")
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
    assert found.max_offsets == 0


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


def test_columns_come_in_the_order_of_the_schema() -> None:
    assert parsed(columns="body, topic").columns == ("topic", "body")
    assert parsed(columns="body", includeProperties="true").columns == ("body", "properties")
    assert parsed(includeProperties="TRUE").columns == tuple(
        name for name in columns.DDL_TYPES if name not in {"sharding_key", "phy_offset", "record"}
    )


def test_filters_leave_out_the_retry_topic_of_the_group() -> None:
    found = parsed(tags="a", group="g")
    assert found.filter_of("T") == ("a", "")
    assert found.filter_of("%RETRY%g") == ("*", "")
    assert found.filter_of("%RETRY%other") == ("a", "")


def test_bodies_may_be_left_out() -> None:
    assert "body" not in parsed(includeBody="false").columns
    assert parsed(includeBody="false", columns="tags,topic").columns == ("topic", "tags")


def test_a_micro_batch_may_have_limits() -> None:
    found = parsed(minOffsetsPerTrigger="10", maxTriggerDelay="2m", maxBytesPerTrigger="1000")
    assert (found.min_offsets, found.max_trigger_delay_ms, found.max_bytes) == (10, 120_000, 1000)
    assert parsed(minOffsetsPerTrigger="10").max_trigger_delay_ms == 900_000
    for text, ms in [("500ms", 500), ("30s", 30_000), ("1h", 3_600_000), ("750", 750)]:
        assert parsed(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"topics": "T"}, "no option topics: did you mean topic"),
        ({"kafka.bootstrap.servers": "a:1"}, "that is Kafka's word, write namesrv"),
        ({"kafka.group.id": "g"}, "that is Kafka's word, write group"),
        ({"kafka.ssl.keystore": "k"}, "it sets Kafka's client, and has no meaning here"),
        ({"startingOffset": "earliest"}, "no option startingoffset: did you mean startingOffsets"),
        ({"xyzzy": "1"}, "no option xyzzy: known are namesrv, brokers, topic"),
        ({"topic": " "}, "needs the option topic"),
        ({"namesrv": "localhost"}, "'localhost', which is no host:port"),
        ({"namesrv": "localhost:0"}, "'localhost:0', which is no host:port"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is 'many', not a whole number"),
        ({"slots": "0"}, "slots is '0', not a whole number from 1 up"),
        ({"columns": "body,tag"}, "names tag, which is no column: did you mean tags"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no': write true or false"),
        ({"tags": "A | B"}, "the option tags is 'A | B': 'A | B' is no tag"),
        ({"tags": "A", "sql": "a = 1"}, "tags and sql exclude each other"),
        ({"sql": "a = "}, "the option sql is 'a =': "),
        ({"columns": "body", "includeBody": "false"}, "columns names body, and includeBody=false"),
        ({"commitOffsets": "true"}, "commitOffsets=true needs the option group"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "more than maxOffsetsPer"),
        ({"maxTriggerDelay": "9s"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        (
            {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"},
            "maxTriggerDelay is 'soon': write a time such as 500ms",
        ),
    ],
)
def test_an_error_is_one_sentence(more: dict[str, str], sentence: str) -> None:
    said = error_of(lambda: parsed(**more))
    assert sentence in said
    assert "\n" not in said


def test_a_missing_name_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert "needs the option namesrv" in error_of(lambda: options.parse({"topic": "T"}))


def test_the_guide_names_every_option() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "spark.md").read_text(encoding="utf-8")
    table = guide[guide.index("## Options") : guide.index("## What to know")]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:110])}
    assert set(options.OPTIONS) <= named
