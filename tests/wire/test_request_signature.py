"""Signatures as RocketMQ's own client makes them."""

from cometmq.wire.command import request
from cometmq.wire.request_signature import Credentials, add_signature, sign


def test_the_values_in_the_order_of_their_names_and_the_body_are_signed():
    fields = {"topic": "T", "AccessKey": "ak", "Signature": "old"}
    assert sign(fields, b"body", "sk") == "Kl84W8mGQQm89V3600onwZ8IR9s="


def test_a_request_says_who_asks_and_a_token_is_signed_too():
    command = request(10, 1, body=b"body")
    command.ext["topic"] = "T"
    add_signature(command, Credentials("ak", "sk"))
    assert command.ext == {
        "topic": "T",
        "AccessKey": "ak",
        "Signature": "Kl84W8mGQQm89V3600onwZ8IR9s=",
    }
    add_signature(command, Credentials("ak", "sk", "sts"))
    assert command.ext["SecurityToken"] == "sts"
    assert command.ext["Signature"] == sign(command.ext, b"body", "sk") != sign({}, b"body", "sk")


def test_credentials_do_not_show_their_secrets():
    assert "sk" not in repr(Credentials("ak", "sk", "token"))
