"""Requests from brokers, lost locks, refused offsets: consumers against a scripted broker."""

import asyncio
import itertools
import threading
import time

import pytest

from client.scripted_broker import BROKER, TOPIC, pull_response, record
from client.short_delay_cluster import until
from cometmq import ConsumeFrom, Message, MessageQueue, Producer, PushConsumer
from cometmq.errors import BrokerError, RemotingTimeout
from cometmq.wire.bodies.admin import decode_directly_result, decode_running_info
from cometmq.wire.bodies.lock import decode_lock_request
from cometmq.wire.bodies.offset import decode_consumer_status, encode_reset_offset
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request, response
from cometmq.wire.headers.admin import ResetOffsetRequestHeader
from cometmq.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.records import properties

GROUP = "asked"
_opaques = itertools.count(77_777)
QUEUE = MessageQueue(TOPIC, BROKER, 0)


@pytest.fixture
def listening(scripted_broker):
    """A consumer that has its queue; `seen` keeps the offsets its handler got."""
    seen = []
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(TOPIC, "*", lambda messages: seen.extend(m.queue_offset for m in messages))
    consumer.seen = seen
    with consumer:
        until(lambda: TOPIC in {pull.topic for pull in pulls(scripted_broker)})
        yield consumer


def answer_to(scripted_broker, code, header, body=b""):
    opaque = next(_opaques)
    scripted_broker.send_request(request(code, opaque, header, body))

    def found():
        return [c for c in list(scripted_broker.received) if c.is_response and c.opaque == opaque]

    until(found)
    return found()[0]


def pulls(scripted_broker):
    return [
        PullMessageRequestHeader.decode(c.ext)
        for c in scripted_broker.requests(RequestCode.PULL_MESSAGE)
    ]


def test_an_unknown_request_is_answered_not_supported_and_the_connection_stays(
    scripted_broker, listening
):
    before = list(scripted_broker.connections)
    answer = answer_to(scripted_broker, 4_711, None)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "4711" in answer.remark
    assert scripted_broker.connections == before


def test_a_change_of_members_leads_to_a_round_at_once(scripted_broker, listening):
    scripted_broker.members.append("zzz")
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=GROUP)
    asked = len(scripted_broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
    scripted_broker.send_request(
        request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1, header, oneway=True)
    )
    until(lambda: len(scripted_broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) > asked)
    assert QUEUE in listening.assigned  # one queue, and we come first


def test_a_reset_moves_the_queue_and_commits_the_new_offset(scripted_broker, listening):
    header = ResetOffsetRequestHeader(topic=TOPIC, group=GROUP, timestamp=-1)
    body = encode_reset_offset({QUEUE: 500})
    scripted_broker.send_request(
        request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 1, header, body, oneway=True)
    )
    until(lambda: 500 in {pull.queue_offset for pull in pulls(scripted_broker)})
    commits = [
        UpdateConsumerOffsetRequestHeader.decode(c.ext).commit_offset
        for c in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    assert 500 in commits


def test_a_consumer_tells_its_offsets(scripted_broker, listening):
    header = GetConsumerStatusRequestHeader(topic=TOPIC, group=GROUP)
    answer = answer_to(scripted_broker, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
    own, by_client = decode_consumer_status(answer.body)
    assert own == {QUEUE: 0}
    assert by_client == {listening.client_id: {QUEUE: 0}}


def test_a_consumer_tells_what_it_is_doing(scripted_broker, listening):
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=GROUP, client_id=listening.client_id
    )
    answer = answer_to(scripted_broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = decode_running_info(answer.body)
    assert QUEUE in info.mq_table
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert {one.topic for one in info.subscriptions} == {TOPIC, f"%RETRY%{GROUP}"}


def test_a_question_about_another_group_is_refused(scripted_broker, listening):
    asked = {
        RequestCode.GET_CONSUMER_RUNNING_INFO: GetConsumerRunningInfoRequestHeader(
            consumer_group="other", client_id="x"
        ),
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatusRequestHeader(
            topic=TOPIC, group="other"
        ),
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetRequestHeader(
            topic=TOPIC, group="other", timestamp=-1
        ),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="other"
        ),
    }
    for code, header in asked.items():
        answer = answer_to(scripted_broker, code, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR, code
        assert "no member of other" in answer.remark


def test_a_consumer_handles_one_message_when_a_broker_asks(scripted_broker, listening):
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group=GROUP, broker_name=BROKER)
    answer = answer_to(scripted_broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record(123))
    assert decode_directly_result(answer.body).consume_result == "CR_SUCCESS"
    assert listening.seen == [123]
    broken = answer_to(scripted_broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, b"no record")
    assert broken.code == ResponseCode.SYSTEM_ERROR
    damaged = record(124, b"hello").replace(b"hello", b"hallo")
    refused = answer_to(scripted_broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, damaged)
    result = decode_directly_result(refused.body)
    assert result.consume_result == "CR_THROW_EXCEPTION"
    assert "checksum" in result.remark
    assert listening.seen == [123], "no handler gets what is not what was sent"


def test_an_offset_outside_the_queue_is_corrected_and_committed(scripted_broker):
    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic == TOPIC and asked.queue_offset == 9_000:
            found = pull_response(command, [], next_offset=40)
            found.code = ResponseCode.PULL_OFFSET_MOVED
            return found
        return None

    scripted_broker.committed = 9_000
    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr)
    consumer.subscribe(TOPIC, "*", lambda messages: None)
    with consumer:
        until(
            lambda: (
                40 in {pull.queue_offset for pull in pulls(scripted_broker) if pull.topic == TOPIC}
            )
        )
    commits = {
        UpdateConsumerOffsetRequestHeader.decode(c.ext).commit_offset
        for c in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    }
    assert 40 in commits


def test_a_repeated_answer_is_not_handled_twice(scripted_broker):
    seen = []

    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic != TOPIC or asked.queue_offset > 6:
            return None
        # every answer overlaps the one before
        start = max(asked.queue_offset - 2, 0)
        return pull_response(
            command,
            [record(n) for n in range(start, asked.queue_offset + 3)],
            next_offset=asked.queue_offset + 3,
        )

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, orderly=True)
    consumer.subscribe(TOPIC, "*", lambda messages: seen.extend(m.queue_offset for m in messages))
    with consumer:
        until(lambda: len(seen) >= 9)
    assert seen == list(range(9))


class Slow:
    """A handler of an orderly consumer that notes when it ran."""

    def __init__(self):
        self.begun, self.seen = threading.Event(), []

    def __call__(self, messages):
        self.begun.set()
        time.sleep(0.05)
        self.seen.append(messages[0].queue_offset)


@pytest.fixture
def orderly(request, scripted_broker):
    locks = getattr(request, "param", {"lock_renew_s": 0.1, "lock_valid_s": 0.5})
    handler = Slow()
    sent = []

    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic != TOPIC or asked.queue_offset >= 200:
            return None
        sent.append(asked.queue_offset)
        return pull_response(command, [record(asked.queue_offset + n) for n in range(10)])

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, orderly=True, **locks)
    consumer.subscribe(TOPIC, "*", handler)
    consumer.handler = handler
    with consumer:
        until(handler.begun.is_set)
        yield consumer


def test_an_orderly_consumer_stops_when_somebody_else_has_its_lock(scripted_broker, orderly):
    scripted_broker.refused_locks.add(QUEUE)
    asked = len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ))
    until(lambda: len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)) > asked + 3)
    count = len(orderly.handler.seen)
    time.sleep(0.4)
    assert len(orderly.handler.seen) <= count + 1
    scripted_broker.refused_locks.clear()
    until(lambda: len(orderly.handler.seen) > count + 3)
    assert orderly.handler.seen == list(range(len(orderly.handler.seen)))


def test_an_orderly_consumer_starts_anew_where_somebody_else_has_gone_on(scripted_broker, orderly):
    scripted_broker.refused_locks.add(QUEUE)
    asked = len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ))
    until(lambda: len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)) > asked + 3)
    scripted_broker.committed = 150
    scripted_broker.refused_locks.clear()
    until(lambda: 150 in orderly.handler.seen)
    own = [offset for offset in orderly.handler.seen if offset < 150]
    assert own == list(range(len(own)))


def test_a_broken_connection_counts_as_a_lost_lock_until_it_is_taken_again(
    scripted_broker, orderly
):
    asked = len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ))
    scripted_broker.break_connections()
    until(lambda: len(scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)) > asked)
    count = len(orderly.handler.seen)
    until(lambda: len(orderly.handler.seen) > count + 3)
    assert orderly.handler.seen == list(range(len(orderly.handler.seen)))


@pytest.mark.parametrize("order", ["queue", "key"])
def test_an_idle_consumer_asks_for_its_locks_again_after_a_broken_connection(
    scripted_broker, order, tmp_path
):
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, order=order, state_dir=tmp_path)
    consumer.subscribe(TOPIC, "*", lambda messages: None)
    with consumer:
        until(lambda: QUEUE in consumer.assigned)
        asked = _locks_asked(scripted_broker)
        scripted_broker.break_connections()
        until(lambda: _locks_asked(scripted_broker) > asked, timeout_s=15)


def _locks_asked(scripted_broker):
    """How often the lock of the queue was asked for."""
    wanted = [
        decode_lock_request(one.body).queues
        for one in scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)
    ]
    return sum(QUEUE in queues for queues in wanted)


@pytest.mark.parametrize("orderly", [{}], indirect=True)  # a lock that ran out is not committed
def test_locks_are_returned_after_the_commit_at_stop(scripted_broker, orderly):
    orderly.stop()
    order = [
        command.code
        for command in list(scripted_broker.received)
        if not command.is_oneway
        and (
            (command.code == RequestCode.UPDATE_CONSUMER_OFFSET and command.ext["topic"] == TOPIC)
            or (
                command.code == RequestCode.UNLOCK_BATCH_MQ
                and QUEUE in decode_lock_request(command.body).queues
            )
            or command.code == RequestCode.UNREGISTER_CLIENT
        )
    ]
    assert order == [
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UNREGISTER_CLIENT,
    ]
    commits = [
        UpdateConsumerOffsetRequestHeader.decode(command.ext)
        for command in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    last = [commit.commit_offset for commit in commits if commit.topic == TOPIC][-1]
    assert last == len(orderly.handler.seen)


def test_a_send_is_tried_again_with_the_same_key_after_errors_that_may_pass(scripted_broker):
    remaining = [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR]

    def answer(command):
        if remaining:
            return response(command.opaque, remaining.pop(), remark="busy")
        return scripted_broker.stored(command)

    scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = answer
    with Producer("p", namesrv=scripted_broker.addr) as producer:
        result = producer.send(Message(TOPIC, b"x"))
    sent = scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)
    assert len(sent) == 3
    assert all(f"UNIQ_KEY\x01{result.msg_id}\x02" in command.ext["i"] for command in sent)


def test_a_send_gives_up_after_its_retries_and_at_once_when_retrying_is_no_use(scripted_broker):
    def refusing(code):
        return lambda command: response(command.opaque, code, remark="no")

    with Producer("p", namesrv=scripted_broker.addr) as producer:
        scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = refusing(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(BrokerError, match="no"):
            producer.send(Message(TOPIC, b"x"))
        assert len(scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)) == 3
        scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = refusing(
            ResponseCode.MESSAGE_ILLEGAL
        )
        with pytest.raises(BrokerError):
            producer.send(Message(TOPIC, b"x"))
        assert len(scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)) == 4


def test_the_next_send_of_a_key_waits_for_the_retries_of_the_one_before(scripted_broker):
    held = threading.Event()

    def answer(command):
        body = command.body
        if body == b"first" and len(scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)) < 3:
            return response(command.opaque, ResponseCode.SYSTEM_BUSY, remark="busy")
        if body == b"first":
            held.set()
        return scripted_broker.stored(command)

    scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = answer
    with Producer("p", namesrv=scripted_broker.addr) as producer:
        first = producer.send_async(Message(TOPIC, b"first", sharding_key="k"))
        second = producer.send_async(Message(TOPIC, b"second", sharding_key="k"))
        other = producer.send_async(Message(TOPIC, b"other", sharding_key="another"))
        for future in (first, second, other):
            future.result(10)
    bodies = [command.body for command in scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)]
    assert bodies.index(b"second") > max(at for at, b in enumerate(bodies) if b == b"first")
    assert bodies.index(b"other") < bodies.index(b"second")


def test_a_peer_that_never_answers_ends_the_call_at_its_deadline(scripted_broker):
    scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: None
    with Producer("p", namesrv=scripted_broker.addr) as producer:
        began = time.monotonic()
        with pytest.raises(RemotingTimeout):
            producer.send(Message(TOPIC, b"x"), timeout_s=0.3)
        assert 0.25 < time.monotonic() - began < 2.9  # 3 s where nothing is said


def test_a_cancelled_send_leaves_no_trace(scripted_broker):
    from cometmq import AsyncProducer

    async def scenario():
        scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: None
        async with AsyncProducer("p", namesrv=scripted_broker.addr) as producer:
            task = producer.send_async(Message(TOPIC, b"x", sharding_key="k"))
            await asyncio.to_thread(
                until, lambda: scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)
            )
            task.cancel()
            scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = scripted_broker.stored
            await producer.send(Message(TOPIC, b"y", sharding_key="k"))
            (channel,) = producer._session.pool.open_channels()
            assert channel._waiting == {}

    asyncio.run(scenario())


def test_a_record_that_cannot_be_read_is_never_skipped(scripted_broker):
    """What came before it is handled; the pull that begins with it is tried again."""
    seen, is_healed = [], threading.Event()

    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic != TOPIC or asked.queue_offset > 3:
            return None
        records = [record(n) for n in range(asked.queue_offset, 4)]
        if not is_healed.is_set():
            records[2 - asked.queue_offset] = b"\0" * 100
        return pull_response(command, records)

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, orderly=True)
    consumer.subscribe(TOPIC, "*", lambda messages: seen.extend(m.queue_offset for m in messages))
    with consumer:
        until(lambda: [pull.queue_offset for pull in pulls(scripted_broker)].count(2) >= 3)
        assert seen == [0, 1]
        is_healed.set()
        until(lambda: len(seen) == 4)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("orderly", [True, False])
def test_a_handler_that_hangs_does_not_hold_up_the_stop_for_ever(scripted_broker, orderly):
    begun, gate = threading.Event(), threading.Event()

    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        return (
            pull_response(command, [record(0)])
            if (asked.topic, asked.queue_offset) == (TOPIC, 0)
            else None
        )

    def hang(messages):
        begun.set()
        gate.wait(30)

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    consumer = PushConsumer(
        GROUP, namesrv=scripted_broker.addr, orderly=orderly, stop_timeout_s=0.3
    )
    consumer.subscribe(TOPIC, "*", hang)
    with consumer:
        until(begun.is_set)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    gate.set()
    commits = [
        UpdateConsumerOffsetRequestHeader.decode(c.ext)
        for c in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    assert {commit.commit_offset for commit in commits if commit.topic == TOPIC} <= {0}
    unlocked = [
        decode_lock_request(c.body) for c in scripted_broker.requests(RequestCode.UNLOCK_BATCH_MQ)
    ]
    assert QUEUE not in {queue for one in unlocked for queue in one.queues}


def test_a_message_that_is_not_taken_back_is_sent_anew_to_the_retry_topic(scripted_broker):
    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        return (
            pull_response(command, [record(0)])
            if asked.queue_offset == 0 and asked.topic == TOPIC
            else None
        )

    def refuse(command):
        return response(command.opaque, ResponseCode.SYSTEM_ERROR, remark="no such record")

    def fail(messages):
        raise ValueError("not today")

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer
    scripted_broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = refuse
    consumer = PushConsumer(GROUP, namesrv=scripted_broker.addr, max_attempts=4)
    consumer.subscribe(TOPIC, "*", fail)
    with consumer:
        until(lambda: scripted_broker.requests(RequestCode.SEND_MESSAGE_V2))
    (back,) = scripted_broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (back.ext["maxReconsumeTimes"], back.ext["offset"]) == ("3", "0")
    assert back.ext["dlqReason"] == "ValueError: not today"
    (sent,) = scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)
    pairs = properties.decode(sent.ext["i"].encode())
    assert (sent.ext["b"], sent.ext["j"], sent.ext["l"]) == (f"%RETRY%{GROUP}", "1", "3")
    assert (sent.body, pairs["RETRY_TOPIC"], pairs["DELAY"]) == (b"x", TOPIC, "3")
    assert "RECONSUME_TIME" not in pairs
    commits = [
        UpdateConsumerOffsetRequestHeader.decode(c.ext)
        for c in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    assert [commit.commit_offset for commit in commits if commit.topic == TOPIC][-1] == 1
