"""Sends that come in one chunk are stored and answered as if they had come one by one."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from broker.commands import Harness, send_header
from broker.harness import new_disk, run, running
from cometmq.settings.store import StoreSettings
from cometmq.store.log.record_template import RecordTemplate
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.usefixtures("each_form")

ASYNC = StoreSettings(commit_log_file_bytes=1 << 20, message_index_enable=False)
SYNC = StoreSettings(commit_log_file_bytes=1 << 20, flush_disk_type="SYNC_FLUSH")
TIMEOUT_S = 20.0


class RawConnection:
    """A connection on which bytes are written as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()

    async def ask(self, frames: list[bytes]) -> dict[int, Command]:
        """Write all at once; the answers by opaque."""
        self._writer.write(b"".join(frames))
        answers: list[Command] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(answers) < len(frames):
                found = self._decoder.feed(await self._reader.read(1 << 16))
                answers += [Command.decode(each) for each in found]
        assert len(answers) == len(frames)
        return {answer.opaque: answer for answer in answers}


@asynccontextmanager
async def opened(harness: Harness) -> AsyncIterator[RawConnection]:
    """A connection whose sends are known."""
    harness.broker.state.topics.ensure("T", 4)
    host, _, port = harness.broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        wire = RawConnection(reader, writer)
        for number in range(2):  # the first is decoded and learned, the second matched
            await wire.ask([frame(90_000_000 + number)])
        yield wire
    finally:
        writer.close()
        await writer.wait_closed()


def frame(number: int, body: bytes = b"hello", **more: object) -> bytes:
    """A send with its own UNIQ_KEY and KEYS; the opaque is its number, of eight digits."""
    pairs = {"UNIQ_KEY": f"K{number:08}", "KEYS": f"order-{number:08}", "TAGS": "A"}
    header = send_header("T", queue_id=number % 4, properties=pairs)
    for name, value in more.items():
        setattr(header, name, value)
    return request(RequestCode.SEND_MESSAGE_V2, number, header, body).encode()


def watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many each run put."""
    counts: list[int] = []
    put_run = RecordTemplate.put_run

    def watched(self, *args):
        places = put_run(self, *args)
        counts.append(len(places.phy_offsets))
        return places

    put_frames = RecordTemplate.put_frames

    def watched_in_c(self, *args):
        end, answers, size = put_frames(self, *args)
        counts.append(len(answers))
        return end, answers, size

    monkeypatch.setattr(RecordTemplate, "put_run", watched)
    monkeypatch.setattr(RecordTemplate, "put_frames", watched_in_c)
    return counts


def assert_is_stored(harness: Harness, number: int, body: bytes, answer: Command) -> None:
    store = harness.broker.store
    assert answer.code == 0
    raw = store.record_at(int(answer.ext["msgId"][16:], 16))
    record = stored.decode(raw)
    assert stored.is_whole(record, raw, 0)
    assert stored.CRC_MARK in record.properties
    assert record.body == body
    pairs = properties.decode(stored.shown_properties(record.properties))
    assert (pairs["UNIQ_KEY"], pairs["KEYS"]) == (f"K{number:08}", f"order-{number:08}")
    assert answer.ext["transactionId"] == f"K{number:08}"
    assert record.queue_id == number % 4 == int(answer.ext["queueId"])
    assert record.queue_offset == int(answer.ext["queueOffset"])
    entry = store.entry("T", record.queue_id, record.queue_offset)
    assert entry == (record.phy_offset, record.size, 65)


def no_gaps(harness: Harness, answers: dict[int, Command], begin: list[int]) -> None:
    """In each queue the answers' offsets go up with the opaques, without a gap."""
    for queue_id in range(4):
        mine = [int(a.ext["queueOffset"]) for o, a in sorted(answers.items()) if o % 4 == queue_id]
        assert mine == list(range(begin[queue_id], begin[queue_id] + len(mine)))
        assert harness.broker.store.max_offset("T", queue_id) == begin[queue_id] + len(mine)


def ends(harness: Harness) -> list[int]:
    return [harness.broker.store.max_offset("T", queue_id) for queue_id in range(4)]


@pytest.mark.parametrize("settings", [ASYNC, SYNC], ids=["async", "sync"])
def test_a_window_of_sends_is_stored_and_answered_one_by_one(monkeypatch, settings) -> None:
    counts = watch(monkeypatch)

    async def scenario() -> None:
        async with running(settings) as harness, opened(harness) as wire:
            rng = random.Random(1)
            number = 10_000_000
            for window in (2, 3, 64, 7, 64, 64):  # offsets of one, two and three digits
                bodies = {number + n: b"x" * rng.randrange(1, 200) for n in range(window)}
                before = ends(harness)
                counter = harness.broker.state.stats.counter_of_puts("T")
                counted = counter.count, counter.bytes
                answers = await wire.ask([frame(n, body) for n, body in bodies.items()])
                for opaque, body in bodies.items():
                    assert_is_stored(harness, opaque, body, answers[opaque])
                no_gaps(harness, answers, before)
                sizes = sum(
                    harness.broker.store.entry("T", n % 4, int(answers[n].ext["queueOffset"]))[1]
                    for n in bodies
                )
                assert (counter.count, counter.bytes) == (counted[0] + window, counted[1] + sizes)
                number += 100
            assert sum(counts) > 150
            assert harness.broker._server.in_flight == 0
            if settings is SYNC:
                assert harness.broker.store._log.flushed == harness.broker.store._log.tail

    run(scenario())


def test_one_among_them_that_is_refused_or_takes_the_slow_path_holds_up_nobody(monkeypatch) -> None:
    odd = {
        20_000_005: {"queue_id": 99},
        20_000_011: {"topic": "U"},
        20_000_017: {"body": b"x" * (5 << 20)},
        20_000_023: {"properties": "UNIQ_KEY\x01K\x02DELAY\x011\x02"},
        20_000_029: {"flag": 3},
    }

    counts = watch(monkeypatch)

    async def scenario() -> None:
        async with running(ASYNC) as harness, opened(harness) as wire:
            numbers = range(20_000_000, 20_000_040)
            answers = await wire.ask([frame(n, **odd.get(n, {})) for n in numbers])
            assert [n for n in numbers if answers[n].code] == [20_000_005, 20_000_017]
            for number in set(numbers) - set(odd):
                assert_is_stored(harness, number, b"hello", answers[number])
            assert counts[0] == 5

    run(scenario())


def test_a_run_goes_over_the_end_of_a_file_of_the_log(monkeypatch) -> None:
    counts = watch(monkeypatch)

    async def scenario() -> None:
        disk = new_disk()
        async with running(ASYNC, disk=disk) as harness, opened(harness) as wire:
            number = 30_000_000
            while harness.broker.store.max_phy_offset < 5 << 19:
                bodies = {number + n: b"x" * 3_000 for n in range(20)}
                answers = await wire.ask([frame(n, body) for n, body in bodies.items()])
                for opaque, body in bodies.items():
                    assert_is_stored(harness, opaque, body, answers[opaque])
                number += 100
            assert any(0 < count < 19 for count in counts)
        async with running(ASYNC, disk=disk) as harness:  # and is read again after a restart
            assert sum(ends(harness)) == 2 + 20 * (number - 30_000_000) // 100

    run(scenario())


def test_a_run_that_cannot_be_written_fails_for_all_and_leaves_no_gap(monkeypatch) -> None:
    counts = watch(monkeypatch)

    async def scenario() -> None:
        disk = new_disk()
        async with running(ASYNC, disk=disk) as harness, opened(harness) as wire:
            before = ends(harness)
            numbers = range(40_000_000, 40_000_064)
            disk.room = 0
            answers = await wire.ask([frame(n) for n in numbers])
            disk.room = None
            assert {answer.code for answer in answers.values()} == {14}
            assert sorted(answers) == list(numbers)
            assert sum(counts) > 50
            no_gaps(harness, await wire.ask([frame(n) for n in numbers]), before)

    run(scenario())


def test_without_the_checksum_none_is_written(monkeypatch) -> None:
    counts = watch(monkeypatch)

    async def scenario() -> None:
        plain = StoreSettings(commit_log_file_bytes=1 << 20, append_crc=False)
        async with running(plain) as harness, opened(harness) as wire:
            answers = await wire.ask([frame(n) for n in range(50_000_000, 50_000_030)])
            for answer in answers.values():
                raw = harness.broker.store.record_at(int(answer.ext["msgId"][16:], 16))
                assert stored.CRC_MARK not in raw
                assert stored.decode(raw).body == b"hello"
            assert sum(counts) > 20

    run(scenario())


@pytest.mark.parametrize("count", [60, 61, 62, 150])
def test_sends_of_many_properties_are_stored_and_answered(count: int) -> None:
    """The loops in C have room for 64 values of a header, properties and numbers together."""

    def of_many(number: int) -> bytes:
        pairs = {"UNIQ_KEY": f"K{number:08}"} | {f"p{at}": "v" for at in range(count)}
        header = send_header("T", queue_id=number % 4, properties=pairs)
        return request(RequestCode.SEND_MESSAGE_V2, number, header, b"hello").encode()

    async def scenario() -> None:
        async with running(ASYNC) as harness, opened(harness) as wire:
            for begin in (30_000_000, 30_000_100, 30_000_200):
                numbers = range(begin, begin + 20)
                answers = await wire.ask([of_many(number) for number in numbers])
                for number in numbers:
                    at = int(answers[number].ext["msgId"][16:], 16)
                    record = stored.decode(harness.broker.store.record_at(at))
                    assert properties.find(record.properties, b"UNIQ_KEY") == b"K%08d" % number
                    assert properties.find(record.properties, b"p%d" % (count - 1)) == b"v"

    run(scenario())
