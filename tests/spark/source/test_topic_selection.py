"""Which topics and queues a read is about."""

from __future__ import annotations

import pytest

from cometmq.model.queue import MessageQueue
from cometmq.spark.option_reader import OptionReader
from cometmq.spark.source.topic_selection import OPTIONS, TopicSelection, parse, queue_key, queue_of
from spark.scripted import error_of


def parsed(**given: str) -> TopicSelection:
    return parse(OptionReader(given, OPTIONS))


def test_topics_are_chosen_by_their_names() -> None:
    assert parsed(topic=" T ").topics == parsed(subscribe="T").topics == ("T",)
    several = parsed(subscribe="B, A,B")
    assert several.topics == ("B", "A")
    assert several.only_topic == ""
    assert several.covers(MessageQueue("A", "b", 0))
    assert not several.covers(MessageQueue("C", "b", 0))


def test_a_pattern_matches_whole_names_and_no_system_topic() -> None:
    names = ["Orders", "Orders2", "TBW102", "rmq_sys_x", "c_REPLY_TOPIC", "%DLQ%g", "%RETRY%g"]
    assert parsed(subscribePattern="Orders").chosen(names) == ["Orders"]
    assert parsed(subscribePattern=".*").chosen(names) == ["Orders", "Orders2"]
    assert parsed(subscribePattern="%DLQ%.*").chosen(names) == ["%DLQ%g"]
    assert parsed(subscribePattern="Orders").only_topic == ""


def test_queues_are_chosen_by_topic() -> None:
    found = parsed(assign='{"T": ["b-1:x:12", "b:0"], "U": ["b:3"]}')
    assert found.named_topics() == ("T", "U")
    assert MessageQueue("T", "b-1:x", 12) in found.queues
    assert not found.covers(MessageQueue("T", "b", 1))
    assert parsed(assign='{"T": ["b:0"]}').only_topic == "T"


def test_a_key_names_broker_and_queue_whatever_the_broker_is_called() -> None:
    queue = MessageQueue("T", "b-1:x", 12)
    assert queue_of("T", queue_key(queue)) == queue
    for wrong in ("b0", "b0:", ":3", "b0:-1", "b0:x"):
        with pytest.raises(ValueError, match="broker:queueId"):
            queue_of("T", wrong)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "needs the option topic"),
        ({"subscribe": " "}, "needs the option topic"),
        ({"subscribe": " , "}, "the option subscribe is ',', which names no topic"),
        ({"topic": "T", "subscribe": "T"}, "topic and subscribe exclude each other"),
        ({"subscribePattern": "("}, "is no regular expression"),
        ({"assign": "[]"}, "no JSON object of lists"),
        ({"assign": '{"T": [0]}'}, "write it as broker:queueId"),
        ({"assign": "{}"}, "names no queue"),
    ],
)
def test_an_error_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    assert sentence in error_of(lambda: parsed(**given))
