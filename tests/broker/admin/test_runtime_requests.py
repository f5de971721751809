"""What a broker tells of itself while it runs."""

from __future__ import annotations

import dataclasses

from broker.harness import SMALL_STORE, run, running
from cometmq.store.message_draft import MessageDraft
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.codes import RequestCode
from cometmq.wire.codes import RequestCode as Code

SYNC_STORE = dataclasses.replace(SMALL_STORE, flush_disk_type="SYNC_FLUSH")


RUNTIME_KEYS = """
    brokerVersionDesc brokerActive putTps getTransferredTps getTransferedTps brokerVersion
    sendThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize
    pullThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills earliestMessageTimeStamp
    commitLogDiskRatio msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow timerReadBehind
    timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps consumeQueueDiskRatio
    putMessageAverageSize bootTimestamp runtime commitLogMinOffset commitLogMaxOffset
    commitLogDirCapacity remainHowManyDataToFlush ackThreadPoolQueueSize getFoundTps getMissTps
    getTotalTps putMessageDistributeTime putLatency99 putLatency999 putMessageFailedTimes
    putMessageEntireTimeMax getMessageEntireTimeMax
"""


def test_the_runtime_information_has_every_key_that_tools_read() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(2):
                await client.send("T")
            await client.pull("T")
            answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = decode_kv_table(answer.body)
            assert not set(RUNTIME_KEYS.split()) - set(table)
            assert table["msgPutTotalTodayNow"] == table["msgGetTotalTodayNow"] == "2"
            assert len(table["putTps"].split()) == 3
            assert int(table["earliestMessageTimeStamp"]) > 1_700_000_000_000

    run(scenario())


def test_pulls_and_the_time_of_puts_are_reported_as_measured() -> None:
    async def scenario() -> None:
        async with running(store=SYNC_STORE) as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            for offset in (0, 1, 3, 3, 3):
                await client.pull("T", queue_offset=offset)
            harness.broker.state.stats.sample()
            store = harness.broker.store
            answer = await client.call(Code.GET_BROKER_RUNTIME_INFO)
            table = decode_kv_table(answer.body)
            assert table["getFoundTps"].split()[0] == "0.2", "two in ten seconds"
            assert table["getMissTps"].split()[0] == "0.3"
            assert table["getTotalTps"].split()[0] == "0.5"
            assert table["getTransferredTps"].split()[0] == "0.5", "messages: three and two"
            classes = [each.rpartition(":") for each in table["putMessageDistributeTime"].split()]
            assert [name for name, _, _ in classes][::12] == ["[<=0ms]", "[10s~]"]
            assert sum(int(count) for _, _, count in classes) == 3
            assert float(table["putLatency99"]) > 0
            assert float(table["putLatency999"]) >= float(table["putLatency99"])
            assert table["putMessageEntireTimeMax"] == str(int(store.put_times.longest_s * 1000))
            assert table["putMessageFailedTimes"] == "0"
            assert table["remainHowManyDataToFlush"] == "0 B", "SYNC_FLUSH"

    run(scenario())


def test_the_lag_of_the_key_index_behind_the_log_is_reported() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, store = await harness.client(), harness.broker.store

            async def behind() -> int:
                answer = await client.call(Code.GET_BROKER_RUNTIME_INFO)
                return int(decode_kv_table(answer.body)["dispatchBehindBytes"])

            await client.send("T")
            await store.lookup.catch_up()
            assert await behind() == 0
            store._parts.index.is_paused = True
            start = store.max_phy_offset
            await client.send("T")
            assert await behind() == store.max_phy_offset - start > 0
            store._parts.index.is_paused = False
            await store.lookup.catch_up()
            assert await behind() == 0

    run(scenario())


def test_the_time_of_the_oldest_message_is_reported_whatever_address_it_was_sent_from() -> None:
    async def scenario() -> None:
        async with running() as harness:
            body, properties = b"over IPv6", b"UNIQ_KEY\x01K\x02"
            draft = MessageDraft("T", 0, body, properties, born_ms=1, born_host=bytes(20))
            harness.broker.store.put(draft)
            client = await harness.client()
            assert (await client.send("T")).code == 0
            answer = await client.call(Code.GET_BROKER_RUNTIME_INFO)
            (first, *_) = await client.drain("T")
            table = decode_kv_table(answer.body)
            assert int(table["earliestMessageTimeStamp"]) == first.store_ms

    run(scenario())
