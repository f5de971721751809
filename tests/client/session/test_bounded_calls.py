"""No call waits for ever, or longer than its timeout: stops, forks, servers that never answer."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from client.scripted_broker import TOPIC, check_back_request
from client.short_delay_cluster import until
from cometmq import Message, Producer
from cometmq.client.middleware import trace
from cometmq.errors import ClientStopped, CometError, NotStarted, RemotingTimeout
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION


@pytest.mark.parametrize("others", [0, 1])  # blocking clients of the process that go on
def test_a_stop_ends_the_calls_of_all_threads_and_none_waits_for_its_deadline(
    scripted_broker, others
):
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(Producer("other", namesrv=scripted_broker.addr))
        _stop_amid_calls(scripted_broker)


def _stop_amid_calls(scripted_broker):
    producer = Producer("g", namesrv=scripted_broker.addr)
    producer.start()
    producer.send(Message(TOPIC, b"first"))
    scripted_broker.answers[SEND] = scripted_broker.answers[RequestCode.SEND_BATCH_MESSAGE] = (
        lambda command: None
    )
    plain = [Message(TOPIC, b"x")] * 3
    calls = [
        lambda: producer.send(Message(TOPIC, b"x"), timeout_s=60.0),
        lambda: producer.send(Message(TOPIC, b"x", sharding_key="k"), timeout_s=60.0),
        lambda: producer.send(Message(TOPIC, b"x", properties={"a": "b"}), timeout_s=60.0),
        lambda: producer.send_batch(plain, timeout_s=60.0),
        lambda: producer.send_many(plain, timeout_s=60.0),
        lambda: producer.request(Message(TOPIC, b"x"), timeout_s=60.0),
    ]
    ended = []

    def call(one):
        try:
            one()
        except CometError as error:
            ended.append(error)

    threads = [threading.Thread(target=call, args=(one,), daemon=True) for one in calls]
    for thread in threads:
        thread.start()
    waiting = (SEND, RequestCode.SEND_BATCH_MESSAGE)
    sent = len(calls) + 1  # with the first
    until(lambda: sum(len(scripted_broker.requests(code)) for code in waiting) == sent)
    producer.stop()
    for thread in threads:
        thread.join(10)
    assert len(ended) == len(calls)
    assert all(isinstance(error, NotStarted) for error in ended), ended


def test_a_stop_ends_retries_while_another_client_goes_on_with_the_same_connection(scripted_broker):
    def busy(command):
        return response(command.opaque, ResponseCode.SYSTEM_BUSY, remark="busy")

    scripted_broker.answers[SEND] = scripted_broker.answers[RequestCode.SEND_BATCH_MESSAGE] = busy
    first, second = (
        Producer(group, namesrv=scripted_broker.addr, instance_name="one") for group in "gh"
    )
    with second, ThreadPoolExecutor() as pool:
        first.start()
        sent = pool.submit(first.send_many, [Message(TOPIC, b"x")] * 3, timeout_s=60.0)
        until(lambda: len(scripted_broker.requests(RequestCode.SEND_BATCH_MESSAGE)) > 1)
        first.stop()
        with pytest.raises(ClientStopped):
            sent.result(10)
        assert len(scripted_broker.connections) == 2  # a name server's, and the one of brokers


def test_a_forked_child_must_make_its_own_client_and_touches_no_connection_of_its_parent(
    scripted_broker,
):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        producer.send(Message(TOPIC, b"second"))
        child = os.fork()
        if child == 0:
            code = _in_child(producer)
            grandchild = os.fork()  # as daemons do
            if grandchild == 0:
                os._exit(_in_child(producer))
            os._exit(code | os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(Message(TOPIC, b"third"))
    assert [command.body for command in scripted_broker.requests(SEND)] == [
        b"first",
        b"second",
        b"third",
    ]


def _in_child(producer):
    refused = 0
    for use in (
        lambda: producer.send(Message(TOPIC, b"child")),
        lambda: producer.send_async(Message(TOPIC, b"child")),
        lambda: producer.queues(TOPIC),
        producer.start,
    ):
        try:
            use()
        except NotStarted as error:
            refused += "forked" in str(error)
    producer.stop()  # waits for nobody
    return 0 if refused == 4 else 1


def test_a_check_that_ends_the_program_ends_no_other_client(scripted_broker):
    asked = threading.Event()

    def check(message):
        asked.set()
        sys.exit(3)

    with Producer("g", namesrv=scripted_broker.addr, check=check) as producer:
        producer.send(Message(TOPIC, b"x"))
        until(lambda: scripted_broker.clients)
        scripted_broker.send_request(check_back_request("BAD"))
        assert asked.wait(10)
        time.sleep(0.05)  # the exit travels from the check's thread to the loop
        assert producer.send(Message(TOPIC, b"y", sharding_key="k")).queue_offset == 0


def test_a_request_whose_broker_does_not_answer_its_heartbeat_ends_in_the_time_given(
    scripted_broker,
):
    scripted_broker.answers[RequestCode.HEART_BEAT] = lambda command: None
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout):
            producer.request(Message(TOPIC, b"x"), timeout_s=0.4)
        assert time.monotonic() - begun < 2.9  # 3 s are a heartbeat's


def test_a_stop_waits_for_a_trace_that_nobody_takes_no_longer_than_for_one_of_its_messages(
    scripted_broker, monkeypatch
):
    monkeypatch.setattr(trace, "FLUSH_S", 0.5)
    producer = Producer("g", namesrv=scripted_broker.addr, trace=True)
    producer.start()
    for _ in range(60):
        producer.send(Message(TOPIC, b"x"))
    scripted_broker.answers[SEND] = lambda command: None
    begun = time.monotonic()
    producer.stop()
    assert time.monotonic() - begun < 4.5


def test_the_end_of_many_half_messages_takes_no_longer_than_the_time_given(scripted_broker):
    scripted_broker.answers[END] = lambda command: None
    with Producer("g", namesrv=scripted_broker.addr, check=lambda message: False) as producer:
        transaction = producer.transaction()
        halves = [transaction.send(Message(TOPIC, b"x")) for _ in range(40)]
        begun = time.monotonic()
        transaction.end(True, timeout_s=0.3)
        assert time.monotonic() - begun < 40 * 0.3 * 0.8  # not the time for each
        before = len(scripted_broker.requests(END))
        for half in halves:
            scripted_broker.send_request(check_back_request(half.msg_id))
        until(lambda: len(scripted_broker.requests(END)) == before + 40)
        assert {command.ext["commitOrRollback"] for command in scripted_broker.requests(END)} == {
            "8"
        }


def test_a_refused_roll_back_does_not_hide_the_error_that_asked_for_it(scripted_broker):
    scripted_broker.answers[END] = lambda command: response(command.opaque, 1, remark="no")
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        halves = []

        def block():
            with producer.transaction() as transaction:
                halves.append(transaction.send(Message(TOPIC, b"x")))
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            block()
        scripted_broker.send_request(check_back_request(halves[0].msg_id))
        until(lambda: len(scripted_broker.requests(END)) == 2)
        assert [command.ext["commitOrRollback"] for command in scripted_broker.requests(END)] == [
            "12",
            "12",
        ]
