"""Large batches: bounded before anything is stored, stored whole, one at a time between others."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from broker.commands import Client, send_header
from broker.harness import SMALL_STORE, run, running
from cometmq.broker.sends.plain_batches import SMALL_BATCH_MAX
from cometmq.settings.store import BATCH_MESSAGES_MOST, StoreSettings
from cometmq.store.index.index_builder import KeyedRecordReader
from cometmq.store.index.key_hashes import KEYS_MAX, KeyHashes
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame import HEADER_BYTES_MAX
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

if TYPE_CHECKING:
    import pytest

    from cometmq.store.log.commit_log import CommitLog
    from cometmq.wire.command import Command


async def send_batch(client: Client, count: int, queue_id: int = 0) -> Command:
    body = message_batch.encode([BatchItem(0, b"%d" % at, b"") for at in range(count)])
    header = send_header("T", batch=True, queue_id=queue_id, properties={})
    return await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)


def test_a_batch_of_too_many_messages_is_refused_before_any_is_stored() -> None:
    store = replace(SMALL_STORE, batch_messages_max=700)

    async def scenario() -> None:
        async with running(store) as harness:
            client = await harness.client()
            for count in (701, 50_000):
                answer = await send_batch(client, count)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
                assert "more than 700 messages (batchMessagesMax)" in str(answer.remark)
            answer = await send_batch(client, 700)
            assert (answer.code, answer.ext["queueOffset"]) == (0, "0")

    run(scenario())


def test_the_answer_to_the_largest_batch_there_may_be_fits_into_a_header() -> None:
    assert BATCH_MESSAGES_MOST * (56 + 1) + 1_000 < HEADER_BYTES_MAX
    assert StoreSettings().batch_messages_max <= BATCH_MESSAGES_MOST

    async def scenario() -> None:
        store = replace(SMALL_STORE, batch_messages_max=BATCH_MESSAGES_MOST)
        async with running(store, bind_address="127.0.0.1", broker_ip1="2001:db8::1") as harness:
            client = await harness.client()
            answer = await send_batch(client, BATCH_MESSAGES_MOST)
            assert answer.code == 0
            assert answer.ext["msgId"].count(",") == BATCH_MESSAGES_MOST - 1

    run(scenario())


def test_large_batches_are_stored_whole_and_in_order_while_others_are_served() -> None:
    count = SMALL_BATCH_MAX * 3

    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await client.send("T", b"first")
            batches = [asyncio.ensure_future(send_batch(client, count)) for _ in range(3)]
            singles = [await other.send("T", b"single") for _ in range(30)]
            answers = await asyncio.gather(*batches)
            assert {each.code for each in [*singles, *answers]} == {0}
            starts = [int(answer.ext["queueOffset"]) for answer in answers]
            singly = [int(answer.ext["queueOffset"]) for answer in singles]
            assert starts == sorted(starts)
            assert any(starts[0] < at < starts[2] + count for at in singly)
            found = {record.queue_offset: record.body for record in await client.drain("T")}
            for start in starts:
                assert [found[start + at] for at in range(count)] == [
                    b"%d" % at for at in range(count)
                ]

    run(scenario())


def test_a_message_of_very_many_keys_is_found_by_the_first_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    hashes = KeyHashes()
    keys = b" ".join(b"%d" % at for at in range(KEYS_MAX + 10))
    few = hashes.of(b"T", b"KEYS\x01" + b" ".join(keys.split()[:KEYS_MAX]) + b"\x02")
    assert not caplog.messages
    for _ in range(3):
        assert hashes.of(b"T", b"KEYS\x01" + keys + b"\x02TAGS\x01A\x02")[:-1] == few
    assert len(few) == KEYS_MAX
    assert len(caplog.messages) == 1


class LogInMemory:
    """The bytes of some records, as the index reads them."""

    first = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, at: int, size: int, _cached_only: bool) -> bytes:
        return self.data[at : at + size]


def test_one_step_of_the_index_builder_is_bounded_by_its_entries() -> None:
    host = bytes(8)
    raws = [b"KEYS\x01" + b" ".join(b"%d" % n for n in range(1000)) + b"\x02"] * 8
    made = [stored.encode("T", 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, b"", raw) for raw in raws]
    data = b"".join(made)
    log = cast("CommitLog", LogInMemory(data))
    found, at = KeyedRecordReader(log, 1 << 20).read(0, len(data), 32)
    assert list(found.phy_offsets) == [0] * 1000
    assert at == len(made[0])
