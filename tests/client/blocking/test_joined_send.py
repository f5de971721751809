"""Sends of many threads, joined on the connections of the loop thread."""

import _thread
import itertools
import signal
import threading
import time

import pytest

from client.scripted_broker import TOPIC
from cometmq import BrokerError, Message, Producer, RemotingError, RemotingTimeout
from cometmq.client.producer import thread_sender
from cometmq.errors import NotStarted
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(autouse=True)
def joined(monkeypatch):
    """Join the sends even of one thread."""
    monkeypatch.setattr(thread_sender, "THREADS_MAX", 0)


@pytest.fixture
def producer(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        yield producer


def wait_for_sends(scripted_broker, count):
    until = time.monotonic() + 30
    while len(scripted_broker.requests(SEND)) < count:
        assert time.monotonic() < until, "the sends do not arrive"
        time.sleep(0.01)


def in_threads(count, work):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_each_thread_gets_its_own_result_over_one_connection(scripted_broker, producer):
    offsets, results = itertools.count(), []

    def stored(command):
        ext = {"queueId": command.ext["e"], "queueOffset": str(next(offsets)), "msgId": "AB" * 16}
        return response(command.opaque, 0, ext=ext)

    scripted_broker.answers[SEND] = stored

    def work():
        for _ in range(50):
            result = producer.send(
                Message(TOPIC, b"x", tags="t", keys=threading.current_thread().name)
            )
            results.append((threading.current_thread().name, result))

    before = len(scripted_broker.connections)
    for thread in in_threads(20, work):
        thread.join(60)
    keys_of = {}
    for command in scripted_broker.requests(SEND):
        pairs = dict(pair.split("\x01") for pair in command.ext["i"].split("\x02") if pair)
        keys_of[pairs["UNIQ_KEY"]] = pairs.get("KEYS")
    assert len(results) == 1000
    assert sorted(result.queue_offset for _, result in results) == list(range(1000))
    assert all(keys_of[result.msg_id] == name for name, result in results)
    assert len(scripted_broker.connections) == before
    (sends,) = producer.stats().brokers.values()
    assert sends.in_flight == 0


def test_what_failed_goes_on_by_the_slow_path_under_the_same_id(scripted_broker, producer):
    def busy(command):
        scripted_broker.answers[SEND] = scripted_broker.stored
        return response(command.opaque, ResponseCode.SYSTEM_BUSY, remark="busy")

    scripted_broker.answers[SEND] = busy
    result = producer.send(Message(TOPIC, b"x"))
    ids = [
        command.ext["i"].split("\x01")[1].split("\x02")[0]
        for command in scripted_broker.requests(SEND)
    ]
    assert ids[1:] == [result.msg_id] * 2
    scripted_broker.answers[SEND] = lambda command: response(
        command.opaque, ResponseCode.MESSAGE_ILLEGAL, remark="no"
    )
    with pytest.raises(BrokerError, match="no"):
        producer.send(Message(TOPIC, b"x"))


def test_a_send_without_answer_ends_at_its_deadline(scripted_broker, producer):
    scripted_broker.answers[SEND] = lambda command: None
    began = time.monotonic()
    with pytest.raises(RemotingTimeout):
        producer.send(Message(TOPIC, b"x"), timeout_s=0.3)
    assert 0.3 <= time.monotonic() - began < 10
    scripted_broker.answers[SEND] = scripted_broker.stored
    assert producer.send(Message(TOPIC, b"y")).queue_offset == 0


def test_threads_that_wait_are_not_left_waiting_when_the_producer_stops(scripted_broker, producer):
    scripted_broker.answers[SEND] = lambda command: None
    errors = []

    def work():
        try:
            producer.send(Message(TOPIC, b"x"), timeout_s=60.0)
        except (NotStarted, RemotingError) as error:
            errors.append(error)

    threads = in_threads(5, work)
    wait_for_sends(scripted_broker, 1 + 5)
    producer.stop()
    for thread in threads:
        thread.join(30)
    assert len(errors) == 5


def test_an_interrupt_ends_the_wait_and_the_next_send_gets_its_own_answer(
    scripted_broker, producer
):
    held = []
    scripted_broker.answers[SEND] = held.append  # nobody is answered for now

    def interrupt():
        wait_for_sends(scripted_broker, 2)
        _thread.interrupt_main(signal.SIGINT)

    (thread,) = in_threads(1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.send(Message(TOPIC, b"x"), timeout_s=60.0)
    thread.join(30)

    def answer_both(command):
        (connection,) = scripted_broker.clients
        for each, offset in ((held[0], 7), (command, 8)):
            ext = {"queueId": "0", "queueOffset": str(offset), "msgId": "AB" * 16}
            connection.write(response(each.opaque, 0, ext=ext).encode())

    scripted_broker.answers[SEND] = answer_both
    assert producer.send(Message(TOPIC, b"y")).queue_offset == 8
