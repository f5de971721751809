"""Options of a write: what text means, and the one sentence said when it means nothing."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cometmq.spark.sink import sink_options
from spark.scripted import error_of

GOOD = {"namesrv": "127.0.0.1:9876"}


def test_what_is_given_replaces_the_defaults() -> None:
    found = sink_options.parse({**GOOD, "checkpointlocation": "/somewhere", "queryname": "orders"})
    assert (found.namesrv, found.topic) == (("127.0.0.1:9876",), "")
    assert (found.group, found.ignored) == ("cometmq_spark_sink", ())
    assert (found.max_in_flight, found.retry_for_ms) == (16_384, 60_000)
    assert pickle.loads(pickle.dumps(found)) == found
    given = {**GOOD, "topic": "T", "ignorecolumns": "a, b", "maxInFlight": "1", "group": "g"}
    other = sink_options.parse(given)
    assert (other.topic, other.ignored, other.max_in_flight) == ("T", ("a", "b"), 1)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("maxInFlight", "0", "maxInFlight is '0', not a whole number from 1 up"),
        ("topic", "no topic", "an option of the write to format"),
        ("group", "?", "an option of the write to format"),
        ("maxInFlights", "5", "did you mean maxInFlight"),
        ("rejectedPath", "s3a://bucket/rejected", "it must be a directory that driver and"),
        ("namesrv", "here", "holds 'here', which is no host:port"),
    ],
)
def test_a_wrong_option_is_answered_in_a_sentence(option: str, value: str, sentence: str) -> None:
    assert sentence in error_of(lambda: sink_options.parse({**GOOD, option: value}))


def test_the_directory_of_rejected_rows_is_the_same_for_every_process() -> None:
    def directory(text: str) -> str:
        return sink_options.parse({**GOOD, "rejectedPath": text}).rejected_path

    assert directory("rejected") == str(Path.cwd() / "rejected")
    assert directory("file:///mnt/rejected") == directory("/mnt/rejected") == "/mnt/rejected"
    assert directory("") == ""
