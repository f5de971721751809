"""Nothing that the broker does with old messages has the loop wait for the disk."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import properties_of
from broker.harness import new_disk, now_ms, run, running
from cometmq.settings.store import StoreSettings
from cometmq.store.log.mapped_file_queue import MappedFileQueue
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.commands import Client, Harness
    from cometmq.store.log.mapped_file_queue import NotInMemory

DELAYED = "cometmq.broker.delivery.delayed_messages"
SMALL = StoreSettings(commit_log_file_bytes=1 << 18, max_hash_slot_num=1000, max_index_num=1000)
HALF = {"TRAN_MSG": "true", "PGROUP": "PG"}


class Cold:
    """A disk whose files are not in memory once `sleep` was called; counts reads that waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = new_disk()
        self.waits: list[str] = []
        read = MappedFileQueue.read

        def watched(row: MappedFileQueue, at: int, length: int, cached_only: bool = False) -> bytes:
            is_cold = not cached_only and at < row.resident_from and at < row.end
            if self.files.is_asleep and is_cold:
                self.waits.append(f"{row.directory} {at}")
            return read(row, at, length, cached_only)

        monkeypatch.setattr(MappedFileQueue, "read", watched)

    @asynccontextmanager
    async def broker(self, *, asleep: bool = False, **settings: Any) -> AsyncIterator[Harness]:
        async with running(SMALL, disk=self.files, **settings) as harness:
            self.files.fetched.clear()
            self.files.is_asleep = asleep
            yield harness
            self.files.is_asleep = False


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Cold:
    return Cold(monkeypatch)


async def end(client: Client, half: Any, offset: str) -> int:
    answer = await client.call(
        RequestCode.END_TRANSACTION,
        producerGroup="PG",
        tranStateTableOffset=offset,
        commitLogOffset=str(int(half.ext["msgId"][16:], 16)),
        commitOrRollback="8",
        fromTransactionCheck="false",
        msgId="M",
        transactionId="M",
    )
    return answer.code


def test_old_half_messages_are_committed_and_asked_about(cold: Cold) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {
            "transaction_check_interval_ms": 3_600_000,
            "transaction_timeout_ms": 1,
        }
        async with cold.broker(**settings) as harness:
            client = await harness.client()
            now = {"properties": HALF, "born_timestamp": now_ms()}
            halves = [await client.send("T", b"%d" % n, **now) for n in range(3)]
            assert await end(client, halves[0], "0") == 0
        async with cold.broker(asleep=True, **settings) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            assert await end(client, halves[1], "1") == 0
            await harness.broker.state.check_back.check()
            asked = await client.asked_next()
            while asked.code != RequestCode.CHECK_TRANSACTION_STATE:
                asked = await client.asked_next()
            assert stored.decode(asked.body).body == b"2"
            found = [record.body for record in await client.drain("T")]
            assert found == [b"0", b"1"]
        assert cold.waits == []

    run(scenario())


def test_old_delayed_messages_are_delivered(cold: Cold) -> None:
    async def scenario() -> None:
        async with cold.broker(message_delay_level="1s 1s") as harness:
            client = await harness.client()
            for number in range(40):
                level = str(number % 2 + 1)
                await client.send("T", b"%02d" % number, properties={"DELAY": level})
        async with cold.broker(asleep=True, message_delay_level="1s 1s") as harness:
            client = await harness.client()
            async with asyncio.timeout(10):
                while harness.broker.state.delayed_messages.delivered < 40:
                    await asyncio.sleep(0.01)
            found = [record.body for record in await client.drain("T")]
            assert sorted(found) == [b"%02d" % number for number in range(40)]
            for level in range(2):
                of_level = [body for body in found if int(body) % 2 == level]
                assert of_level == sorted(of_level)
        assert cold.waits == []

    run(scenario())


def test_a_level_whose_disk_fails_does_not_hold_up_the_others(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{DELAYED}.DISK_FAILED_PAUSE_S", 60.0)
    still = pytest.MonkeyPatch()

    async def scenario() -> None:
        still.setattr(f"{DELAYED}.DelayedMessages.deliver_due", lambda _: 60.0)
        async with cold.broker(message_delay_level="1s 1s") as harness:
            client = await harness.client()
            await client.send("T", b"on the bad part", properties={"DELAY": "1"})
            for _ in range(5):
                await client.send("T", bytes(60_000))
            for number in range(640):
                await client.send("T", b"%d" % number, properties={"DELAY": "2"})
        async with cold.broker(asleep=True, message_delay_level="1s 1s") as harness:
            fetch, refused = harness.broker.store.cold_reader.fetch, []

            async def failing(missing: NotInMemory) -> None:
                segment = missing.segment
                if (
                    segment
                    and "commitlog" in str(segment.mapped_files.directory)
                    and not segment.base
                ):
                    refused.append(missing)
                    raise OSError("bad sector")
                await fetch(missing)

            harness.broker.store.cold_reader.fetch = failing  # type: ignore[method-assign]
            still.undo()
            harness.broker.state.delayed_messages._is_moved.set()
            async with asyncio.timeout(50):  # ten bursts of 64, none of them after a rest
                while harness.broker.state.delayed_messages.delivered < 640:
                    await asyncio.sleep(0.01)
            assert refused

    try:
        run(scenario())
    finally:
        still.undo()


async def send_back(client: Client, offset: int, level: int) -> int:
    answer = await client.call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=str(offset),
        group="CG",
        delayLevel=str(level),
        originTopic="T",
        maxReconsumeTimes="16",
        unitMode="false",
    )
    return answer.code


def test_old_messages_are_sent_back_and_dead_lettered_once(cold: Cold) -> None:
    async def scenario() -> None:
        settings = {"dead_letter_deduplicate": True}
        async with cold.broker(**settings) as harness:
            client = await harness.client()
            places = []
            for number in range(40):
                answer = await client.send(
                    "T", b"%d" % number, properties={"UNIQ_KEY": f"K{number}"}
                )
                places.append(int(answer.ext["msgId"][16:], 16))
            for place in places[:30]:
                assert await send_back(client, place, -1) == 0
        async with cold.broker(asleep=True, **settings) as harness:
            client = await harness.client()
            answers = [send_back(client, place, -1) for place in places[10:35]]
            answers += [send_back(client, place, 3) for place in places[35:]]
            assert set(await asyncio.gather(*answers)) == {0}
            dead = await client.drain("%DLQ%CG")
            assert {record.body for record in dead} == {b"%d" % number for number in range(35)}
            assert len(dead) == 35, "none lies there twice"
            assert harness.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 5
        assert cold.waits == []

    run(scenario())


def test_a_retry_that_is_given_up_looks_for_its_dead_letter_on_a_worker_thread(cold: Cold) -> None:
    async def scenario() -> None:
        settings = {"dead_letter_deduplicate": True}
        given_up = {"reconsume_times": 99, "properties": {"UNIQ_KEY": "K", "RETRY_TOPIC": "T"}}
        async with cold.broker(**settings) as harness:
            client = await harness.client()
            assert (await client.send("%RETRY%CG", b"dead", **given_up)).code == 0
        async with cold.broker(asleep=True, **settings) as harness:
            harness.broker.state.dead_letters._has_begun = True
            client = await harness.client()
            sends = [client.send("%RETRY%CG", b"dead", **given_up) for _ in range(3)]
            assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
            (letter,) = await client.drain("%DLQ%CG")
            assert properties_of(letter)["DLQ_ORIGIN_TOPIC"] == "T"
        assert cold.waits == []

    run(scenario())


def test_requests_about_old_messages_wait_on_a_worker_thread(cold: Cold) -> None:
    async def scenario() -> None:
        async with cold.broker() as harness:
            client = await harness.client()
            for number in range(100):
                await client.send("T", b"%d" % number)
            await client.call(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="CG",
                topic="T",
                queueId="0",
                commitOffset="3",
            )
            await client.beat("CG", "T")
        async with cold.broker(asleep=True) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            queue = {"topic": "T", "queueId": "0"}
            group = {"group": "CG", "topic": "T", "isForce": "true"}
            calls: list[tuple[RequestCode, dict[str, str]]] = [
                (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": "0"}),
                (RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
                (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
                (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
                (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG", "topic": "T"}),
                (RequestCode.QUERY_CONSUME_QUEUE, {**queue, "index": "0", "count": "5"}),
                (RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "T", "compareGroup": "CG"}),
                (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
                (
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    {**group, "timestamp": "1000", "queueId": "-1"},
                ),
                (
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    {**group, "timestamp": "-1", "queueId": "0", "offset": "7"},
                ),
            ]
            for code, fields in calls:
                answer = await client.call(code, **fields)
                assert answer.code == ResponseCode.SUCCESS, (code.name, answer)
        assert cold.waits == []

    run(scenario())
