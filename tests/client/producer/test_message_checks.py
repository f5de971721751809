"""Messages and arguments of sends that are refused before anything is sent."""

import pytest

from cometmq import (
    Admin,
    Message,
    Producer,
)
from cometmq.errors import ClientError, InvalidMessage, SettingsError

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("name", ["retries", "compress_over_bytes", "default_topic_queues"])
def test_a_producer_names_a_wrong_argument(name):
    with pytest.raises(SettingsError, match=name):
        Producer("group", namesrv=NOBODY, **{name: "4"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"flag": 1 << 40},
        {"delay_level": "3"},
        {"delay_level": -1},
        {"tags": 5},
        {"sharding_key": 5},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"properties": ["a"]},
        {"tags": "\ud800"},
        {"keys": "a\ud800"},
        {"properties": {"a": "\udfff"}},
        *({"properties": {name: "a"}} for name in ("DLQ_REASON", "DLQ_ATTEMPTS", "__SHARDINGKEY")),
    ],
    ids=str,
)
def test_a_message_of_wrong_parts_is_refused_before_it_is_sent(wrong):
    with Producer("producers", namesrv=NOBODY) as producer, pytest.raises(InvalidMessage):
        producer.send(Message("T", b"x", **wrong))


@pytest.mark.parametrize("keys", [5, [1, 2], b"k"])
def test_keys_are_a_text_or_several(keys):
    with pytest.raises(InvalidMessage, match="keys must be a text or a list of texts"):
        Message("T", b"x", keys=keys)
    assert Message("T", b"x", keys=("a", "b")).keys == "a b"


@pytest.mark.parametrize("thing", ["hello", None, b"x", 5])
def test_anything_but_a_message_is_refused_with_one_sentence(thing):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (
            producer.send,
            producer.send_oneway,
            lambda m: producer.send_async(m).result(9),
        ):
            with pytest.raises(InvalidMessage, match=r"must be a Message, as in .*, not"):
                send(thing)
        for send in (producer.send_many, producer.send_batch):
            with pytest.raises(InvalidMessage, match="must be a Message"):
                send([thing])


@pytest.mark.parametrize("things", [Message("T", b"x"), None, 5])
def test_anything_but_a_list_of_messages_is_refused_with_one_sentence(things):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send_many, producer.send_batch):
            with pytest.raises(InvalidMessage, match="must be a list of Message, not"):
                send(things)


@pytest.mark.parametrize("timeout_s", ["3", None, 0, -1.0, float("nan")])
def test_a_time_to_wait_is_a_number_above_zero(timeout_s):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send, lambda m, t: producer.send_many([m], t)):
            with pytest.raises(ClientError, match=r"timeout_s is .* number of seconds"):
                send(Message("T", b"x"), timeout_s)
    with pytest.raises(SettingsError, match="timeout_s"):
        Admin(namesrv=NOBODY, timeout_s=timeout_s)


def test_a_topic_that_is_no_text_and_a_body_of_text_are_named():
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send, lambda m: producer.send_many([m])):
            with pytest.raises(InvalidMessage, match=r"topic \['T'\] is no text"):
                send(Message(["T"], b"x"))
        with pytest.raises(InvalidMessage, match=r"for T is str; it must be bytes, as text.encode"):
            producer.send(Message("T", "text"))
        with pytest.raises(InvalidMessage, match="one topic"):
            producer.send_batch([Message("T", b"x"), Message("U", b"x")])
