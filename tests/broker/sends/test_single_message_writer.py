"""One message goes to its queue, or where its properties say that it goes first."""

from __future__ import annotations

import asyncio

import pytest

from broker.memory_state import memory_state, until_durable
from cometmq.broker.sends.single_message_writer import RetryLimit, SingleMessageWriter, attempts_max
from cometmq.errors import Reject
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.message import MessageQueue
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.records import log_record, sysflag

GROUP = SubscriptionGroupConfig(group_name="G", retry_max_times=3)


def stored(draft: MessageDraft) -> log_record.StoredRecord:
    """The record of a message that was put."""

    async def scenario() -> log_record.StoredRecord:
        state, store = memory_state()
        writer = SingleMessageWriter(
            store,
            RetryLimit(state.groups, state.locks),
            state.delayed_messages,
            state.dead_letters,
            state.transactions,
            state.timer_schedule,
            state.stats,
        )
        placed = writer.put(draft)
        assert placed.status is PutStatus.PUT_OK
        await until_durable(store)
        raw = store.record_at(placed.phy_offset)
        assert raw is not None
        return log_record.decode(raw)

    return asyncio.run(scenario())


def is_exhausted(times: int, *, asked: int | None = None, is_locked: bool = False) -> bool:
    async def scenario() -> bool:
        state, _ = memory_state()
        state.groups.put(GROUP)
        if is_locked:
            state.locks.lock("G", "c1", [MessageQueue("T", "b0", 0)])
        limit = RetryLimit(state.groups, state.locks)
        return limit.is_exhausted(
            MessageDraft("%RETRY%G", 0, b"b", reconsume_times=times), 479, asked
        )

    return asyncio.run(scenario())


def test_an_ordinary_message_goes_to_its_own_queue() -> None:
    record = stored(MessageDraft("T", 3, b"b", b"a\x011\x02"))
    assert (record.topic, record.queue_id, record.body) == ("T", 3, b"b")


def test_a_delayed_message_goes_to_the_queue_of_its_level() -> None:
    record = stored(MessageDraft("T", 3, b"b", b"DELAY\x012\x02"))
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 1)
    assert log_record.text_properties(record)["REAL_TOPIC"] == "T"


def test_a_half_message_goes_to_the_half_topic() -> None:
    flag = sysflag.TRANSACTION_PREPARED
    record = stored(MessageDraft("T", 3, b"b", b"TRAN_MSG\x01true\x02", sys_flag=flag))
    assert record.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert log_record.text_properties(record)["REAL_QID"] == "3"


def test_a_message_that_is_half_by_its_flag_only_is_refused() -> None:
    with pytest.raises(Reject):
        stored(MessageDraft("T", 3, b"b", sys_flag=sysflag.TRANSACTION_PREPARED))


def test_a_retry_is_exhausted_behind_the_last_attempt_of_the_group_or_client() -> None:
    assert [is_exhausted(times) for times in (3, 4)] == [False, True]
    assert [is_exhausted(times, asked=5) for times in (5, 6)] == [False, True]


def test_a_retry_of_a_group_that_consumes_in_order_is_exhausted_at_once() -> None:
    assert is_exhausted(0, is_locked=True)


def test_only_newer_clients_say_how_often_a_message_is_tried() -> None:
    assert [attempts_max(GROUP, version, 9) for version in (120, 121)] == [3, 9]
    assert attempts_max(GROUP, 479, None) == 3
