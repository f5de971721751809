"""Requests and replies, as brokers carry them."""

import asyncio
import threading

import pytest

from client.received_messages import received
from client.scripted_broker import TOPIC
from client.short_delay_cluster import until
from cometmq import AsyncProducer, InvalidMessage, Message, Producer, RemotingTimeout
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request, response
from cometmq.wire.headers.send import ReplyMessageRequestHeader

SEND, REPLY = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


def pairs(command):
    return dict(pair.split("\x01") for pair in command.ext["i"].split("\x02") if pair)


def push(properties, body, host="10.0.0.1:99"):
    header = ReplyMessageRequestHeader(
        producer_group="other",
        topic="c_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties="".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        born_host=host,
        store_host=host,
        store_timestamp=6,
    )
    return request(PUSH, 77, header, body)


def reply_soon(scripted_broker):
    """Have the broker push a reply to each request it stores."""
    stored = scripted_broker.stored

    def answer(command):
        asked = pairs(command)
        back = push({"CORRELATION_ID": asked["CORRELATION_ID"]}, b"re: " + command.body)
        threading.Thread(target=scripted_broker.send_request, args=(back,)).start()
        return stored(command)

    scripted_broker.answers[SEND] = answer


def test_a_request_returns_the_reply_that_a_broker_brings(scripted_broker):
    reply_soon(scripted_broker)
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        reply = producer.request(Message(TOPIC, b"question", tags="t"), timeout_s=5)
        assert reply.body == b"re: question"
        assert reply.born_host == bytes([10, 0, 0, 1, 0, 0, 0, 99])
        asked = pairs(scripted_broker.requests(SEND)[0])
        assert asked["TTL"] == "5000"
        assert asked["TAGS"] == "t"
        assert "@" in asked["REPLY_TO_CLIENT"]
        until(lambda: any(c.is_response and c.opaque == 77 for c in scripted_broker.received))
        (said,) = [c for c in scripted_broker.received if c.is_response and c.opaque == 77]
        assert said.code == 0
    assert scripted_broker.requests(RequestCode.HEART_BEAT)


def test_requests_side_by_side_get_their_own_replies_and_late_ones_are_dropped(scripted_broker):
    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr) as producer:
            reply_soon(scripted_broker)
            found = await asyncio.gather(
                *(producer.request(Message(TOPIC, b"%d" % n), timeout_s=10) for n in range(20))
            )
            assert [reply.body for reply in found] == [b"re: %d" % n for n in range(20)]
            scripted_broker.answers[SEND] = scripted_broker.stored
            with pytest.raises(RemotingTimeout, match=r"no reply to .* within 0\.2 s"):
                await producer.request(Message(TOPIC, b"x"), timeout_s=0.2)
            late = pairs(scripted_broker.requests(SEND)[-1])["CORRELATION_ID"]
            await asyncio.to_thread(
                scripted_broker.send_request, push({"CORRELATION_ID": late}, b"late", "odd")
            )
            await producer.send(Message(TOPIC, b"still alive"))

    asyncio.run(scenario())


def asked(properties):
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return received(topic=TOPIC, body=b"q", raw_properties=raw, broker_name="b0")


def test_a_reply_goes_back_with_what_the_request_brought(scripted_broker):
    scripted_broker.answers[REPLY] = lambda command: response(
        command.opaque, 0, ext={"msgId": "0", "queueId": "0", "queueOffset": "0"}
    )
    wanted = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me@1", "TTL": "900"}
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.reply(asked({"CLUSTER": "c", **wanted}), b"answer")
        (sent,) = scripted_broker.requests(REPLY)
        assert (sent.ext["b"], sent.body) == ("c_REPLY_TOPIC", b"answer")
        assert {**wanted, "MSG_TYPE": "reply"}.items() <= pairs(sent).items()
        with pytest.raises(InvalidMessage, match="no request"):
            producer.reply(asked({"KEYS": "k"}), b"answer")
