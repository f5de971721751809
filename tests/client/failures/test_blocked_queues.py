"""What holds a queue up, and how one sees it: stuck handlers, bad messages, lost locks, pauses."""

import logging
import threading
import time

import pytest

from client.scripted_broker import BROKER, TOPIC, pull_response, record
from client.short_delay_cluster import until
from cometmq import (
    ConsumeFrom,
    ConsumeStatus,
    FlowLimits,
    MessageQueue,
    MessageSelector,
    PushConsumer,
    RetryLater,
)
from cometmq.errors import ClientError
from cometmq.wire.bodies.admin import decode_running_info
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request, response
from cometmq.wire.headers.client import GetConsumerRunningInfoRequestHeader
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.retry import ConsumerSendMsgBackRequestHeader

GROUP = "still"
QUEUE = MessageQueue(TOPIC, BROKER, 0)


def holding(scripted_broker, count):
    """Let the queue hold `count` messages."""

    def answer(command):
        asked = PullMessageRequestHeader.decode(command.ext)
        if asked.topic != TOPIC or asked.queue_offset >= count:
            return None
        last = min(asked.queue_offset + asked.max_msg_nums, count)
        return pull_response(command, [record(n) for n in range(asked.queue_offset, last)])

    scripted_broker.answers[RequestCode.PULL_MESSAGE] = answer


def consumer(scripted_broker, handler, **settings):
    made = PushConsumer(
        GROUP, namesrv=scripted_broker.addr, **{"consume_from": ConsumeFrom.FIRST, **settings}
    )
    made.subscribe(TOPIC, "*", handler)
    return made


def committed(scripted_broker):
    commits = [
        UpdateConsumerOffsetRequestHeader.decode(command.ext)
        for command in scripted_broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    return max((commit.commit_offset for commit in commits if commit.topic == TOPIC), default=-1)


def sent_back(scripted_broker):
    return [
        ConsumerSendMsgBackRequestHeader.decode(command.ext)
        for command in scripted_broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    ]


def running_info(scripted_broker):
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=GROUP, client_id=scripted_broker.members[0], jstack_enable=False
    )
    scripted_broker.send_request(request(RequestCode.GET_CONSUMER_RUNNING_INFO, 5_555, header))

    def found():
        return [c for c in list(scripted_broker.received) if c.is_response and c.opaque == 5_555]

    until(found)
    return decode_running_info(found()[0].body)


def test_the_oldest_message_of_a_stuck_handler_is_sent_back_with_level_3(scripted_broker):
    holding(scripted_broker, 5)
    free = threading.Event()

    def stuck(messages):
        if messages[0].queue_offset in (0, 3):
            free.wait(20)

    with consumer(scripted_broker, stuck, consume_timeout_s=0.3, persist_s=0.1) as running:
        until(lambda: committed(scripted_broker) == 5)  # though two handlers are still at work
        assert [(one.offset, one.delay_level) for one in sent_back(scripted_broker)] == [
            (0, 3),
            (300, 3),
        ]
        assert running.assigned
        free.set()
    assert len(sent_back(scripted_broker)) == 2


def test_the_first_messages_of_a_batch_may_be_done_and_the_rest_come_again(scripted_broker):
    holding(scripted_broker, 4)

    def half(messages):
        raise RetryLater("half", delay_level=2, done=2)

    with consumer(scripted_broker, half, batch_size=4):
        until(lambda: len(sent_back(scripted_broker)) == 2)
    assert [(one.offset, one.delay_level) for one in sent_back(scripted_broker)] == [
        (200, 2),
        (300, 2),
    ]
    assert committed(scripted_broker) == 4


def test_a_blocked_queue_says_so_to_the_program_the_operator_and_at_the_start(
    scripted_broker, caplog
):
    holding(scripted_broker, 3)

    def bad(messages):
        if messages[0].queue_offset == 1:
            raise ValueError("no such account")

    with caplog.at_level(logging.INFO):
        with consumer(scripted_broker, bad, orderly=True, suspend_ms=10) as running:
            until(lambda: running.blocked and running.blocked[0].attempts > 2)
            (one,) = running.blocked
            assert (one.queue, one.queue_offset) == (QUEUE, 1)
            assert one.reason == "ValueError: no such account"
            info = running_info(scripted_broker)
            assert info.mq_table[QUEUE].last_lock_timestamp > 0
            text = info.properties[f"BLOCKED_{TOPIC}@{BROKER}@0"]
            assert "offset 1 has failed" in text
            assert "no such account" in text
        assert running.blocked == []
    assert "may block its queue for ever" in caplog.text


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({"max_attempts": 4, "suspend_ms": 1000}, logging.INFO, "block its queue 3 s"),
        ({"max_attempts": 17, "suspend_ms": 5000}, logging.WARNING, "block its queue 80 s"),
    ],
)
def test_the_longest_block_is_logged_and_above_a_minute_it_is_a_warning(
    scripted_broker, caplog, settings, level, words
):
    with caplog.at_level(logging.INFO), consumer(scripted_broker, print, orderly=True, **settings):
        pass
    assert [one.levelno for one in caplog.records if words in one.message] == [level]


def test_results_count_only_when_nobody_else_went_on_while_the_lock_was_away(
    scripted_broker, caplog
):
    holding(scripted_broker, 60)
    seen, begun, go_on = [], threading.Event(), threading.Event()

    def slow(messages):
        seen.extend(message.queue_offset for message in messages)
        if seen[-1] == 5:
            begun.set()
            go_on.wait(20)

    settings = {"orderly": True, "lock_renew_s": 0.1, "lock_valid_s": 0.4}
    with consumer(scripted_broker, slow, **settings) as running:
        until(begun.is_set)
        # as if this process had been suspended and another had taken over
        scripted_broker.refused_locks.add(QUEUE)
        until(lambda: "another member has the lock" in caplog.text)
        go_on.set()
        scripted_broker.committed = 40
        scripted_broker.refused_locks.clear()
        until(lambda: 59 in seen)
        assert 1 <= running.overlaps <= 6  # what was done since the last commit
    assert seen == [*range(6), *range(40, 60)]
    assert "results are discarded" in caplog.text


def test_with_auto_commit_off_only_commit_moves_the_offset_and_rollback_brings_all_again(
    scripted_broker,
):
    holding(scripted_broker, 6)
    calls = []
    verdicts = {
        (2, 0): ConsumeStatus.ROLLBACK,
        (2, 1): ConsumeStatus.COMMIT,
        (5, 0): ConsumeStatus.SUCCESS,
    }

    def handler(messages):
        offset = messages[0].queue_offset
        verdict = verdicts.get((offset, calls.count(offset)))
        calls.append(offset)
        return verdict

    settings = {"orderly": True, "auto_commit": False, "suspend_ms": 10, "persist_s": 0.1}
    with consumer(scripted_broker, handler, **settings):
        until(lambda: len(calls) == 9)
    assert calls == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert committed(scripted_broker) == 3


def test_a_paused_consumer_pulls_nothing_until_it_resumes(scripted_broker):
    holding(scripted_broker, 0)
    seen = []
    with consumer(scripted_broker, seen.extend) as running:
        until(lambda: running.assigned)
        running.pause()
        scripted_broker.break_connections()  # ends the pulls that are under way
        holding(scripted_broker, 3)
        before = len(scripted_broker.requests(RequestCode.PULL_MESSAGE))
        time.sleep(0.4)
        assert len(scripted_broker.requests(RequestCode.PULL_MESSAGE)) <= before + 1
        assert not seen
        running.resume()
        until(lambda: len(seen) == 3)


def test_a_limit_for_the_topic_holds_the_pulls_of_its_queues(scripted_broker):
    holding(scripted_broker, 1000)
    free, seen = threading.Event(), []

    def wait(messages):
        seen.append(1)
        free.wait(20)

    flow = FlowLimits(topic_count=40)
    with consumer(scripted_broker, wait, flow=flow, pull_batch_size=32):
        until(lambda: len(scripted_broker.requests(RequestCode.PULL_MESSAGE)) >= 2 and seen)
        time.sleep(0.3)
        pulls = [
            PullMessageRequestHeader.decode(command.ext)
            for command in scripted_broker.requests(RequestCode.PULL_MESSAGE)
        ]
        assert max(one.queue_offset for one in pulls if one.topic == TOPIC) == 32
        assert running_info(scripted_broker).mq_table[QUEUE].cached_msg_count == 64
        free.set()


def test_the_running_info_tells_rates_of_what_was_pulled_done_and_failed(
    scripted_broker, monkeypatch
):
    monkeypatch.setattr("cometmq.client.consumer.push_engine.SAMPLE_S", 0.1)
    monkeypatch.setattr("cometmq.metrics.sampled_series.MINUTE_SAMPLE_MS", 100)
    holding(scripted_broker, 20)
    calls = []

    def handler(messages):
        time.sleep(0.01)
        calls.append(messages[0].queue_offset)
        if calls[-1] % 4 == 0:
            raise RetryLater

    with consumer(scripted_broker, handler):
        until(lambda: len(calls) == 20)
        time.sleep(0.3)
        rates = running_info(scripted_broker).status_table[TOPIC]
    assert rates.pull_tps > 0
    assert rates.consume_ok_tps == pytest.approx(3 * rates.consume_failed_tps, rel=0.01)
    assert rates.consume_rt >= 9


def test_a_condition_is_shown_to_the_broker_which_may_refuse_it(scripted_broker):
    def refuse(command):
        return response(command.opaque, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="what?")

    scripted_broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = refuse
    made = PushConsumer(GROUP, namesrv=scripted_broker.addr)
    made.subscribe(TOPIC, MessageSelector.by_sql("price >"), print)
    with pytest.raises(ClientError, match=r"price >.*what\?"):
        made.start()
    scripted_broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = scripted_broker.succeed
    scripted_broker.members.clear()
    made = PushConsumer(GROUP, namesrv=scripted_broker.addr)
    made.subscribe(TOPIC, MessageSelector.by_sql("price > 1"), print)

    def kinds():
        return {
            PullMessageRequestHeader.decode(command.ext).expression_type
            for command in scripted_broker.requests(RequestCode.PULL_MESSAGE)
        }

    with made:
        until(lambda: kinds() == {"SQL92", "TAG"})  # its own topic, and the retry topic
    with pytest.raises(ClientError, match="empty"):
        PushConsumer(GROUP, namesrv=scripted_broker.addr).subscribe(
            TOPIC, MessageSelector.by_sql(" "), print
        )
