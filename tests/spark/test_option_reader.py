"""Reading options: names in any case, numbers, durations, words, addresses."""

from __future__ import annotations

import pytest

from cometmq.spark.option_reader import OptionReader
from spark.scripted import error_of

KNOWN = ("sendWindow", "onError", "topic", "namesrv", "linger", "keepKeys")


def reader(**given: str) -> OptionReader:
    return OptionReader(given, KNOWN)


def test_names_ignore_case_and_spaces_around_texts_do_not_count() -> None:
    texts = reader(SENDWINDOW=" 7 ", Topic="", linger="2 s")
    assert texts.whole("sendWindow", 1, least=1) == 7
    assert not texts.has("topic")
    assert texts.text("topic", "T") == "T"
    assert texts.duration_ms("linger", "1s") == 2000
    assert texts.flag("keepKeys", default=True)
    assert texts.names("onError") == ()


def test_of_options_that_exclude_each_other_one_may_be_given() -> None:
    assert reader(topic="T").one_of("topic", "onError") == "topic"
    assert reader().one_of("topic", "onError") == ""
    both = reader(topic="T", onError="fail")
    said = error_of(lambda: both.one_of("topic", "onError"))
    assert said == "the options topic and onError exclude each other: give one"


def test_addresses_come_from_the_environment_when_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOMEWHERE", "a:1;b:2")
    assert reader().addresses("namesrv", "SOMEWHERE") == ("a:1", "b:2")
    assert reader(namesrv="c:3").addresses("namesrv", "SOMEWHERE") == ("c:3",)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("sendwindows", "did you mean sendWindow"),
        ("zzz", "known are sendWindow, onError"),
        ("kafka.bootstrap.servers", "that is Kafka's word, write namesrv"),
        ("kafka.acks", "it sets Kafka's client, and has no meaning here"),
        ("includeHeaders", "that is Kafka's word, and has no meaning here: leave it out"),
    ],
)
def test_an_unknown_option_is_an_error_that_helps(key: str, hint: str) -> None:
    assert hint in error_of(lambda: reader(**{key: "1"}))
