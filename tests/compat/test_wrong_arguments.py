"""Wrong arguments of the old client's names: one sentence each, at the call that was wrong."""

import pytest

from cometmq.compat import Message, Producer, PushConsumer
from cometmq.errors import ClientError

TEXTS = [None, 5, ["x"], b"\xff"]
SETTERS = {
    "set_group": ("group_name", TEXTS),
    "set_instance_name": ("name", TEXTS),
    "set_name_server_address": ("addr", TEXTS),
    "set_namesrv_addr": ("addr", TEXTS),
    "set_timeout": ("timeout", [None, "x", -1, 0, 1.5]),
    "set_message_model": ("model", [None, "x", 7]),
}
MESSAGE = {
    "set_keys": TEXTS,
    "set_tags": TEXTS,
    "set_body": [None, 5, ["x"]],
}


@pytest.mark.parametrize("kind", [Producer, PushConsumer])
def test_settings_are_refused_at_once(kind):
    for value in TEXTS:
        with pytest.raises(ClientError, match="no text"):
            kind(value)
    made = kind("g")
    for name, (_, values) in SETTERS.items():
        if hasattr(made, name):
            for value in values:
                with pytest.raises(ClientError) as caught:
                    getattr(made, name)(value)
                assert repr(value) in str(caught.value)


def test_fields_of_a_message_are_refused_at_once():
    for value in TEXTS:
        with pytest.raises(ClientError, match="no text"):
            Message(value)
    made = Message("t")
    for name, values in MESSAGE.items():
        for value in values:
            with pytest.raises(ClientError, match="no text"):
                getattr(made, name)(value)
    for pair in ((5, "x"), ("x", 5)):
        with pytest.raises(ClientError, match="no text"):
            made.set_property(*pair)


def test_a_subscription_needs_a_function():
    for value in (None, 5, "x"):
        with pytest.raises(ClientError, match="callback"):
            PushConsumer("g").subscribe("t", value)


def test_what_is_sent_must_be_a_message():
    producer = Producer("g")
    producer.set_name_server_address("127.0.0.1:1")
    with producer:
        for value in (None, 5, "x", b"x"):
            for send in (producer.send_sync, producer.send_oneway):
                with pytest.raises(ClientError, match=r"compat\.Message"):
                    send(value)
            with pytest.raises(ClientError, match=r"compat\.Message"):
                producer.send_orderly_with_sharding_key(value, "k")
        with pytest.raises(ClientError, match="no text"):
            producer.send_orderly_with_sharding_key(Message("t"), 5)
