"""Errors nobody foresaw, answers nobody can read, starts and stops that are broken off."""

import asyncio
import threading
import time

import pytest

from client.scripted_broker import BROKER, TOPIC, pull_response, record
from client.short_delay_cluster import until
from cometmq import AsyncPushConsumer, ConsumeFrom, MessageQueue, PushConsumer
from cometmq.client.consumer import queue_assignment
from cometmq.wire.bodies.lock import decode_lock_request
from cometmq.wire.bodies.offset import encode_reset_offset
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request, response
from cometmq.wire.headers.admin import ResetOffsetRequestHeader
from cometmq.wire.headers.client import NotifyConsumerIdsChangedRequestHeader
from cometmq.wire.headers.offset import OffsetResponseHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader

GROUP = "mishaps"
QUEUE = MessageQueue(TOPIC, BROKER, 0)


def messages_up_to(count):
    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic != TOPIC or asked.queue_offset >= count:
            return None
        return pull_response(command, [record(n) for n in range(asked.queue_offset, count)])

    return answer


def consumer(scripted_broker, handler, kind=PushConsumer, topics=(TOPIC,), **options):
    options = {"consume_from": ConsumeFrom.FIRST, "stop_timeout_s": 5.0} | options
    made = kind(GROUP, namesrv=scripted_broker.addr, **options)
    for topic in topics:
        made.subscribe(topic, "*", handler)
    return made


def pulled_from(scripted_broker):
    pulls = [
        PullMessageRequestHeader.decode(c.ext)
        for c in scripted_broker.requests(RequestCode.PULL_MESSAGE)
    ]
    return [pull.queue_offset for pull in pulls if pull.topic == TOPIC]


def members_changed():
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=GROUP)
    return request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1, header, oneway=True)


def reset_to(offset):
    header = ResetOffsetRequestHeader(topic=TOPIC, group=GROUP, timestamp=-1)
    body = encode_reset_offset({QUEUE: offset})
    return request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 1, header, body, oneway=True)


def unlocked(scripted_broker):
    asked = scripted_broker.requests(RequestCode.UNLOCK_BATCH_MQ)
    return {queue for c in asked for queue in decode_lock_request(c.body).queues}


def test_a_queue_is_begun_anew_when_a_failed_message_cannot_even_be_sent_back(
    scripted_broker, caplog
):
    seen = []

    def handler(messages):
        seen.append(messages[0].queue_offset)
        if len(seen) == 1:
            messages[0].body = {"decoded": 1}
            raise ValueError("and the message is spoilt")

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = messages_up_to(1)
    scripted_broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda command: response(
        command.opaque, ResponseCode.SYSTEM_ERROR, remark="no"
    )
    with consumer(scripted_broker, handler):
        until(lambda: len(seen) >= 2)
    assert seen == [0, 0]
    assert caplog.text.count("background work failed") == 1


def test_locks_nobody_can_read_are_asked_for_again(scripted_broker, caplog):
    seen, begun = [], threading.Event()

    def handler(messages):
        begun.wait(10)
        seen.append(messages[0].queue_offset)

    def unreadable(command):
        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = scripted_broker.lock
        return response(command.opaque, 0, body=b"[no locks]")

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = messages_up_to(20)
    with consumer(scripted_broker, handler, orderly=True):
        until(lambda: pulled_from(scripted_broker))
        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = unreadable
        scripted_broker.break_connections()
        begun.set()
        until(lambda: len(seen) == 20)
    assert seen == list(range(20))
    assert "ended with an error" not in caplog.text


@pytest.mark.parametrize("how", ["reset", "given away and taken back"])
def test_a_slow_orderly_handler_never_meets_another_one_of_its_queue(
    scripted_broker, monkeypatch, how
):
    monkeypatch.setattr(queue_assignment, "_SLOW_S", 0.1)
    running, most, begun, gate = [], [], threading.Event(), threading.Event()

    def handler(messages):
        running.append(messages)
        most.append(len(running))
        begun.set()
        gate.wait(20)
        running.pop()

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = messages_up_to(1)
    with consumer(scripted_broker, handler, orderly=True) as slow:
        until(begun.is_set)
        if how == "reset":
            scripted_broker.send_request(reset_to(0))
        else:
            scripted_broker.members.insert(0, "0")  # one queue: the first member has it
            scripted_broker.send_request(members_changed())
            until(lambda: QUEUE not in slow.assigned)
            scripted_broker.members.remove("0")
            scripted_broker.send_request(members_changed())
        time.sleep(1)
        assert most == [1]
        assert QUEUE not in unlocked(scripted_broker)
        gate.set()
        until(lambda: QUEUE in slow.assigned)
        until(lambda: len(most) == 2 or how != "reset")
    assert set(most) == {1}


def test_a_topic_without_readable_route_does_not_hold_up_the_others(scripted_broker):
    def answer(command):
        if command.ext["topic"] == "first":
            return response(command.opaque, ResponseCode.SYSTEM_ERROR, remark="not this one")
        return scripted_broker.route(command)

    scripted_broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
    with consumer(scripted_broker, print, topics=("first", TOPIC)) as running:
        until(lambda: QUEUE in running.assigned, 15)


def test_locks_taken_in_a_round_that_a_stop_broke_off_are_given_back(scripted_broker):
    scripted_broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda command: None
    with consumer(scripted_broker, print, orderly=True):
        until(lambda: scripted_broker.requests(RequestCode.QUERY_CONSUMER_OFFSET))
    assert QUEUE in unlocked(scripted_broker)


def test_a_queue_lost_just_after_a_reset_is_unlocked_and_forgotten(scripted_broker):
    with consumer(scripted_broker, print, orderly=True) as running:
        until(lambda: pulled_from(scripted_broker))
        scripted_broker.members.insert(0, "0")  # one queue: the first member has it
        scripted_broker.send_request(reset_to(500))
        until(lambda: QUEUE in unlocked(scripted_broker))
        scripted_broker.members.remove("0")
        scripted_broker.committed = 900
        scripted_broker.send_request(members_changed())
        until(lambda: QUEUE in running.assigned)
        until(lambda: pulled_from(scripted_broker)[-1] > 0)
        assert pulled_from(scripted_broker)[-1] == 900


def test_an_offset_nobody_can_read_holds_up_its_own_queue_only(scripted_broker):
    def answer(command):
        if command.ext["topic"] == TOPIC:
            return response(command.opaque, 0, ext={"offset": "many"})
        return response(command.opaque, 0, header=OffsetResponseHeader(offset=7))

    scripted_broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = answer
    with consumer(scripted_broker, print) as running:
        until(lambda: running.assigned, 15)
        assert [queue.topic for queue in running.assigned] == [f"%RETRY%{GROUP}"]
    assert pulled_from(scripted_broker) == []


async def nothing_runs():
    async with asyncio.timeout(10):
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)


def test_a_start_that_is_cancelled_leaves_nothing_behind_and_may_be_repeated(scripted_broker):
    async def scenario():
        scripted_broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: None
        running = consumer(scripted_broker, print, AsyncPushConsumer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await running.start()
        assert running.client_id == ""
        assert await running.wait(30)
        await nothing_runs()
        scripted_broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = scripted_broker.route
        async with running, asyncio.timeout(10):
            while QUEUE not in running.assigned:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_stop_that_is_cancelled_still_unregisters_the_client(scripted_broker):
    async def scenario():
        begun = asyncio.Event()

        async def handler(messages):
            begun.set()
            await asyncio.Event().wait()

        scripted_broker.answers[RequestCode.PULL_MESSAGE] = messages_up_to(1)
        running = consumer(scripted_broker, handler, AsyncPushConsumer, stop_timeout_s=30)
        await running.start()
        await begun.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await running.stop()
        assert await running.wait(30)
        await nothing_runs()

    asyncio.run(scenario())
    assert scripted_broker.requests(RequestCode.UNREGISTER_CLIENT)


def test_a_wait_for_a_consumer_that_was_stopped_and_started_again_keeps_its_time(scripted_broker):
    async def scenario():
        running = consumer(scripted_broker, print, AsyncPushConsumer)
        await running.start()
        running.stop_soon("enough for now")
        assert await running.wait(10)
        async with running, asyncio.timeout(30):
            assert await running.wait(0.05) is False

    asyncio.run(scenario())
