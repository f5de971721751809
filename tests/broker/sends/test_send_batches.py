"""Batches that need nothing special are stored together, as their messages would be one by one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from broker.commands import Harness, send_header
from broker.harness import run, running
from cometmq.settings.store import StoreSettings
from cometmq.store.log.record_template import RecordTemplate
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_batch, properties

if TYPE_CHECKING:
    from cometmq.wire.command import Command

pytestmark = pytest.mark.usefixtures("each_form")

FILE_BYTES = 1 << 16


def watch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each batch was stored together; after a None all take the slow path."""
    together: list[bool] = []
    put_batch, put_batch_body = RecordTemplate.put_batch, RecordTemplate.put_batch_body

    def watched(self, *args):
        places = None if None in together else put_batch(self, *args)
        together.append(places is not None)
        return places

    def watched_body(self, *args):
        stored = None if None in together else put_batch_body(self, *args)
        if stored is not None:  # else `put_batch` is next
            together.append(True)
        return stored

    monkeypatch.setattr(RecordTemplate, "put_batch", watched)
    monkeypatch.setattr(RecordTemplate, "put_batch_body", watched_body)
    return together


def item(rng: random.Random, number: int) -> message_batch.BatchItem:
    pairs = {"UNIQ_KEY": f"K{number:04}", "TAGS": rng.choice(["A", "A", "B"])}
    if rng.random() < 0.3:
        pairs["KEYS"] = "k" * rng.randrange(1, 9)
    raw = rng.choice([properties.encode(pairs)] * 8 + [b"", b"UNIQ_KEY\x01u", b"XTAGS\x01C\x02"])
    if rng.random() < 0.3:
        raw = raw.removesuffix(b"\x02")  # as Java's clients leave it
    return message_batch.BatchItem(0, rng.randbytes(rng.randrange(1, 200)), raw)


def stored_batch(harness: Harness, answer: Command) -> list[tuple[object, ...]]:
    """All that was stored of a batch but what must differ, each record checked by itself."""
    assert answer.code == 0, answer
    store, found = harness.broker.store, []
    first, places = int(answer.ext["queueOffset"]), []
    for at, one in enumerate(answer.ext["msgId"].split(",")):
        raw = store.record_at(int(one[16:], 16))
        record = stored.decode(raw)
        assert stored.is_whole(record, raw, 0)
        assert record.queue_offset == first + at
        phy_offset, size, code = store.entry("T", 1, first + at)
        assert (phy_offset, size) == (record.phy_offset, len(raw))
        places.append((phy_offset, phy_offset + size))
        shown = stored.shown_properties(record.properties)
        has_sum = stored.CRC_MARK in record.properties
        found.append((record.body, shown, has_sum, size, code, record.flag, record.sys_flag))
    assert [begin for begin, _ in places[1:]] == [end for _, end in places[:-1]]
    assert places[0][0] // FILE_BYTES == places[-1][0] // FILE_BYTES
    return found


@pytest.mark.parametrize("with_crc", [True, False])
def test_a_plain_batch_is_stored_as_the_slow_path_stores_it(monkeypatch, with_crc: bool) -> None:
    settings = StoreSettings(commit_log_file_bytes=FILE_BYTES, append_crc=with_crc)
    together = watch(monkeypatch)

    async def scenario() -> None:
        async with running(settings) as harness:
            client, rng = await harness.client(), random.Random(5)
            for size in (1, 2, 3, 17, 32, 64, 100, 100, 100, 100):  # over the ends of files
                items = [item(rng, number) for number in range(size)]
                header = send_header("T", batch=True, queue_id=1)
                ways = []
                together.clear()
                for way in (True, None):
                    together.append(way)
                    answer = await client.call(
                        RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items)
                    )
                    ways.append(stored_batch(harness, answer))
                assert together[:2] == [True, True]
                assert True not in together[2:]
                assert ways[0] == ways[1]
                assert [one[0] for one in ways[0]] == [one.body for one in items]
            assert harness.broker.store.max_phy_offset > 2 * FILE_BYTES
            counter = harness.broker.state.stats.counter_of_puts("T")
            assert counter.count == 2 * sum((1, 2, 3, 17, 32, 64, 100, 100, 100, 100))

    run(scenario())


def test_what_a_body_says_is_no_property(monkeypatch) -> None:
    together = watch(monkeypatch)

    async def scenario() -> None:
        async with running(StoreSettings(commit_log_file_bytes=FILE_BYTES)) as harness:
            client = await harness.client()
            items = [
                message_batch.BatchItem(
                    0, b"\x02DELAY\x013\x02TAGS\x01t\x02", b"UNIQ_KEY\x01%d\x02" % n
                )
                for n in range(3)
            ]
            header = send_header("T", batch=True, queue_id=1)
            answer = await client.call(
                RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items)
            )
            assert together == [True]
            assert [one[0] for one in stored_batch(harness, answer)] == [one.body for one in items]
            assert harness.broker.store.max_offset("T", 1) == 3

    run(scenario())


@pytest.mark.parametrize(
    ("odd", "goes_on"),
    [
        (message_batch.BatchItem(7, b"x", b"UNIQ_KEY\x01K\x02"), True),
        (message_batch.BatchItem(0, b"x", b"UNIQ_KEY\x01K\x02MSG_REGION\x01r\x02"), True),
        (message_batch.BatchItem(0, b"x", b"UNIQ_KEY\x01K\x02DELAY\x011\x02"), False),
        (message_batch.BatchItem(0, b"x", b"UNIQ_KEY\x01K\x02" + b"a" * 32_740), False),
        (message_batch.BatchItem(0, b"x" * FILE_BYTES, b"UNIQ_KEY\x01K\x02"), False),
    ],
)
def test_a_batch_with_an_odd_message_takes_the_slow_path_as_a_whole(
    monkeypatch, odd: message_batch.BatchItem, goes_on: bool
) -> None:
    together = watch(monkeypatch)

    async def scenario() -> None:
        async with running(StoreSettings(commit_log_file_bytes=FILE_BYTES)) as harness:
            client = await harness.client()
            items = [message_batch.BatchItem(0, b"y", b"UNIQ_KEY\x01L\x02"), odd]
            header = send_header("T", batch=True, queue_id=1)
            answer = await client.call(
                RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items)
            )
            assert True not in together
            assert (answer.code == 0) == goes_on
            assert harness.broker.store.max_offset("T", 1) == 2 * goes_on

    run(scenario())
