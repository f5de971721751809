"""Small parts by themselves: handlers' outcomes, decoding, subscriptions, ids, queue choice."""

import asyncio
import functools
import logging
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq import BreakerLimits, ConsumeStatus, MessageExt, MessageSelector, RetryLater
from cometmq.client.consumer import message_decoder as decode
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.subscriptions import Subscriptions
from cometmq.client.handling import handler_call as handlers
from cometmq.client.handling.orderly import OrderlyStrategy
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.client.session import identity
from cometmq.client.session.client_options import name_servers
from cometmq.errors import ClientError, SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.rules.circuit_breaker import CircuitBreaker
from cometmq.wire import log_record as stored
from cometmq.wire import properties

HOST = b"\x0a\0\0\2\0\0\x2a\x9f"


def record(body=b"hello", topic="T1", sys_flag=0, pairs=None, offset=0):
    raw = properties.encode(pairs or {})
    return stored.encode(topic, 3, 9, offset, 1234, sys_flag, 17, HOST, 19, HOST, 1, 0, body, raw)


def message(**more):
    (found,), is_whole = decode.decode_messages(record(**more), "b0")
    assert is_whole
    return found


class Mute(Exception):
    """An error that cannot even say what it is."""

    def __str__(self):
        raise ValueError("no words")


def raising(error):
    def handler(messages):
        raise error

    return handler


@pytest.mark.parametrize(
    ("handler", "is_done"),
    [
        (lambda messages: None, True),
        (lambda messages: ConsumeStatus.CONSUME_SUCCESS, True),
        (lambda messages: ConsumeStatus.SUCCESS, True),
        (lambda messages: ConsumeStatus.RECONSUME_LATER, False),
        (lambda messages: ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, False),
        (lambda messages: True, False),
        (raising(ValueError("no")), False),
        (raising(SystemExit(1)), False),
        (raising(asyncio.CancelledError()), False),
        (raising(pytest.fail.Exception("neither an Exception")), False),
        (raising(Mute()), False),
        (lambda messages: messages.clear(), True),
        (lambda messages: messages.clear() or "nonsense", False),
        (raising(RetryLater("later", delay_level=4, suspend_ms=7)), False),
    ],
)
def test_what_a_handler_does_becomes_an_outcome_in_both_kinds(handler, is_done):
    async def twin(messages):
        return handler(messages)

    one = handlers.call_handler(handler, [message()])
    other = asyncio.run(handlers.call_async_handler(twin, [message()]))
    assert one == other
    assert one.is_done is is_done


def test_only_the_end_of_its_own_task_ends_an_async_handler_without_an_outcome():
    async def story():
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()

        async def waits_for_what_was_cancelled(messages):
            await gone

        async def hangs(messages):
            await asyncio.Event().wait()

        outcome = await handlers.call_async_handler(waits_for_what_was_cancelled, [message()])
        assert (outcome.is_done, outcome.reason) == (False, "CancelledError")
        task = asyncio.create_task(handlers.call_async_handler(hangs, [message()]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert not handlers.call_handler(raising(KeyboardInterrupt()), [message()]).is_done


def test_retry_later_carries_its_wishes_and_stays_out_of_the_log(caplog):
    error = RetryLater("busy", delay_level=4, suspend_ms=7, done=9)
    with caplog.at_level(logging.DEBUG):
        outcome = handlers.call_handler(raising(error), [message()])
    assert outcome == handlers.HandlerOutcome(False, "RetryLater: busy", 4, 7, done_count=1)
    assert not caplog.records
    handlers.call_handler(raising(KeyError("k")), [message()])
    assert "KeyError" in caplog.text


def test_async_handlers_are_known_by_their_kind():
    async def plain_async(messages):
        pass

    class Caller:
        async def __call__(self, messages):
            pass

    assert all(map(handlers.is_async, (plain_async, Caller(), functools.partial(plain_async))))
    assert not any(map(handlers.is_async, (print, lambda m: None, [].append)))


def test_a_record_becomes_a_message_with_all_it_carries():
    found = message(pairs={"TAGS": "TagA", "KEYS": "a b", "UNIQ_KEY": "U", "colour": "grün"})
    assert (found.topic, found.queue_id, found.flag) == ("T1", 3, 9)
    assert (found.body, found.tags, found.keys, found.msg_id) == (b"hello", "TagA", ["a", "b"], "U")
    assert found.offset_msg_id == "0A00000200002A9F00000000000004D2"
    assert found.message_queue == MessageQueue("T1", "b0", 3)
    assert "__CRC32#" not in found.properties
    assert message().msg_id == message().offset_msg_id


@pytest.mark.parametrize("method", [0x000, 0x300])
def test_a_compressed_body_is_inflated(method):
    found = message(body=zlib.compress(b"a" * 100), sys_flag=0x1 | method)
    assert (found.body, found.sys_flag & 1) == (b"a" * 100, 0)


@pytest.mark.parametrize(("body", "method"), [(b"no zlib", 0x300), (b"lz4 frame", 0x100)])
def test_a_body_that_cannot_be_inflated_is_handed_over_and_marked(body, method):
    found = message(body=body, sys_flag=0x1 | method)
    assert (found.body, found.sys_flag & 1) == (body, 1)


@given(st.integers(0, 400))
def test_a_cut_answer_yields_the_whole_records_before_the_cut(size):
    whole = b"".join(record(offset=n) for n in range(3))
    messages, is_whole = decode.decode_messages(whole[:size], "b0")
    each = len(whole) // 3
    assert [m.queue_offset for m in messages] == list(range(min(size, len(whole)) // each))
    assert is_whole == (size % each == 0 or size > len(whole))


text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(text, text, max_size=5))
def test_properties_read_as_the_wire_reads_them(pairs):
    raw = properties.encode(pairs)
    found = MessageExt("t", 0, 0, b"", raw, 0, 0, 0, 0, 0, b"", 0, b"", 0, "b").properties
    assert found == properties.decode(raw) == pairs


def test_only_exact_tags_pass_and_retried_messages_get_their_topic_back():
    (one,), (other,) = [
        decode.decode_messages(record(pairs={"TAGS": tag, "RETRY_TOPIC": "first"}), "b0")[0]
        for tag in ("Aa", "BB")
    ]
    assert decode.with_tags([one, other], {b"Aa"}) == [one]
    decode.restore_topics([one])
    assert one.topic == "first"


def test_subscriptions_carry_tags_and_their_codes_and_the_retry_topic():
    table = Subscriptions("g")
    with pytest.raises(ClientError):
        table.freeze(1)
    table.add("T", MessageSelector.by_tag("TagA || TagB"), print)
    table.add("All", MessageSelector(), print)
    table.add("Sql", MessageSelector.by_sql("a > 1"), print)
    table.freeze(77)
    assert table.topics == ["T", "All", "Sql", "%RETRY%g"]
    first, second, third, retry = table.data()
    assert (first.sub_string, first.code_set) == ("TagA || TagB", {2598919, 2598920})
    assert (second.sub_string, second.tags_set) == ("*", frozenset())
    assert (retry.topic, {one.sub_version for one in table.data()}) == ("%RETRY%g", {77})
    assert (third.expression_type, third.sub_string) == ("SQL92", "a > 1")
    assert table.sql_subscriptions == [third]
    assert table.filter_of("T").tags == {b"TagA", b"TagB"}
    assert table.filter_of("Sql").tags == frozenset()
    assert Subscriptions("g", broadcasting=True).topics == []
    assert table.subscription_of("no longer known").handler is print


def test_ids_differ_between_clients_and_name_their_machine():
    ids = {identity.client_id("10.0.0.1", None) for _ in range(100)}
    assert len(ids) == 100
    assert all(one.startswith(f"10.0.0.1@{os.getpid()}#") for one in ids)
    assert identity.client_id("10.0.0.1", "named") == "10.0.0.1@named"
    assert identity.local_ip(("127.0.0.1", 9876)) == "127.0.0.1"


def test_the_turn_goes_round_and_avoids_the_broker_that_failed():
    queues = [MessageQueue("T", broker, n) for broker in "ab" for n in range(2)]
    choice = QueueSelector(first=5)
    assert [choice.round_robin("T", queues) for _ in range(4)] == [*queues[1:], queues[0]]
    assert {choice.round_robin("T", queues, "a").broker_name for _ in range(8)} == {"b"}
    assert choice.round_robin("T", queues[:2], "a") in queues[:2]  # nothing else is there


@pytest.mark.parametrize(
    ("given_as", "found"),
    [
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; b:2; ", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        (None, ("env:9",)),
    ],
)
def test_name_servers_are_read_from_arguments_or_the_environment(given_as, found):
    assert name_servers(given_as, {"NAMESRV_ADDR": "env:9"}) == found
    with pytest.raises(SettingsError):
        name_servers("", {})


def test_a_queue_in_order_whose_lock_has_just_run_out_tries_nothing_in_an_outage():
    async def story():
        consume = object.__new__(OrderlyStrategy)
        consume._held = set()
        assigned = AssignedQueue(MessageQueue("T1", "b0", 3), 0)
        assigned.window.put([message()], 1)
        assert not consume._may_probe(assigned, CircuitBreaker(BreakerLimits()))

    asyncio.run(story())
