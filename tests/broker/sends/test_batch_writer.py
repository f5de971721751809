"""Batches are put whole or not at all, whatever their messages carry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.memory_state import memory_state, until_durable
from cometmq.broker.sends.batch_writer import BatchPutResult, BatchWriter
from cometmq.broker.sends.message_preparation import MessagePreparer
from cometmq.errors import Reject
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.put_result import PutStatus
from cometmq.testing.memory_store import STORE_HOST
from cometmq.wire.headers.send import SendMessageRequestHeader
from cometmq.wire.records import log_record, message_batch
from cometmq.wire.records.message_batch import BatchItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.message_store import MessageStore

LIMITS = StoreSettings(max_message_bytes=500)
PLAIN = [BatchItem(0, b"one", b"a\x011\x02"), BatchItem(0, b"two", b"a\x012\x02")]
HEADER = SendMessageRequestHeader(
    producer_group="PG",
    topic="T",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=2,
    sys_flag=0,
    born_timestamp=17,
    flag=0,
)


def with_writer(
    work: Callable[[BatchWriter], object],
) -> tuple[object, list[log_record.StoredRecord]]:
    """What `work` returns, and the records of queue 2 afterwards."""

    async def scenario() -> tuple[object, list[log_record.StoredRecord]]:
        state, store = memory_state()
        preparer = MessagePreparer(BrokerSettings(), LIMITS, lambda: "NEW")
        result = work(BatchWriter(store, preparer, state.stats, LIMITS))
        await until_durable(store)
        return result, records(store)

    return asyncio.run(scenario())


def records(store: MessageStore) -> list[log_record.StoredRecord]:
    got = store.get("T", 2, 0, 32, 1 << 16) if store.max_offset("T", 2) else None
    return [] if got is None else list(log_record.iterate(got.body))


def put(items: list[BatchItem]) -> Callable[[BatchWriter], BatchPutResult]:
    body = message_batch.encode(items)
    return lambda writer: writer.put(HEADER, 2, 0, writer.decode("T", body), STORE_HOST)


@pytest.mark.parametrize("items", [PLAIN, [*PLAIN, BatchItem(1, b"three", b"POP_CK\x01x\x02")]])
def test_the_messages_of_a_batch_lie_side_by_side(items: list[BatchItem]) -> None:
    result, stored = with_writer(put(items))
    assert isinstance(result, BatchPutResult)
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 0)
    assert [record.phy_offset for record in stored] == result.phy_offsets
    assert [(record.flag, record.body) for record in stored] == [item[:2] for item in items]
    assert {record.born_ms for record in stored} == {17}


@pytest.mark.parametrize(
    "bad",
    [
        BatchItem(0, b"", b""),
        BatchItem(0, b"half", b"TRAN_MSG\x01true\x02"),
        BatchItem(0, b"later", b"DELAY\x013\x02"),
        BatchItem(0, b"inner", b"INNER_NUM\x012\x02"),
    ],
)
def test_one_bad_message_refuses_the_whole_batch(bad: BatchItem) -> None:
    def refused(writer: BatchWriter) -> None:
        with pytest.raises(Reject):
            put([*PLAIN, bad])(writer)

    assert with_writer(refused) == (None, [])


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("%RETRY%G", message_batch.encode(PLAIN)),
        ("T" * 128, message_batch.encode(PLAIN)),
        ("T", message_batch.encode([BatchItem(0, bytes(500), b"")])),
        ("T", b"\x00\x00\x00\x09broken"),
        ("T", b""),
    ],
)
def test_a_body_that_is_no_batch_for_this_topic_is_refused(topic: str, body: bytes) -> None:
    def refused(writer: BatchWriter) -> None:
        with pytest.raises(Reject):
            writer.decode(topic, body)

    with_writer(refused)
