"""Figures, the contents of queues, and cleaning on demand, as mqadmin asks for them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

from broker.harness import SMALL_STORE, run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from broker.commands import Client

QUEUE = MessageQueue("T", "b0", 0)
SYNC_STORE = dataclasses.replace(SMALL_STORE, flush_disk_type="SYNC_FLUSH")


async def figures(client: Client, name: str, key: str) -> dict[str, dict[str, float]]:
    fields = {"statsName": name, "statsKey": key}
    answer = await client.call(Code.VIEW_BROKER_STATS_DATA, **fields)
    assert answer.code == 0, answer
    found = json.loads(answer.body)
    assert set(found) == {"statsMinute", "statsHour", "statsDay"}
    return dict(found)


def test_traffic_is_reported_by_topic_group_queue_and_broker() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            harness.broker.state.stats.sample()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T")
            await asyncio.sleep(1)
            harness.broker.state.stats.sample()
            for name, key, count in (
                ("TOPIC_PUT_NUMS", "T", 3),
                ("GROUP_GET_NUMS", "T@CG", 3),
                ("QUEUE_GET_NUMS", "T@0@CG", 3),
                ("BROKER_PUT_NUMS", "DefaultCluster", 3),
                ("BROKER_GET_NUMS", "DefaultCluster", 3),
            ):
                found = await figures(client, name, key)
                assert {each["sum"] for each in (found["statsMinute"],)} == {count}, name
                assert found["statsMinute"]["tps"] > 0
                assert set(found["statsMinute"]) == {"sum", "tps", "avgpt"}
            assert (await figures(client, "TOPIC_PUT_SIZE", "T"))["statsMinute"]["avgpt"] > 100
            assert (await figures(client, "GROUP_GET_NUMS", "T@CG"))["statsMinute"]["avgpt"] == 3
            await figures(client, "GROUP_GET_LATENCY", "0@T@CG")
            await client.call(Code.DELETE_TOPIC_IN_BROKER, topic="T")
            fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
            answer = await client.call(Code.VIEW_BROKER_STATS_DATA, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"

    run(scenario())


def test_the_contents_of_a_queue_are_shown() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for tag in ("A", "B", "C"):
                await client.send("T", properties={"TAGS": tag})
            await client.beat("CG", "T")
            fields = {"topic": "T", "queueId": "0", "index": "1", "count": "5"}
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **fields)
            found = json.loads(answer.body)
            assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
            assert [entry["tagsCode"] for entry in found["queueData"]] == [66, 67]
            assert found["queueData"][0]["physicSize"] > 0
            assert "subscriptionData" not in found
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **fields, consumerGroup="CG")
            assert json.loads(answer.body)["subscriptionData"]["topic"] == "T"
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **fields, consumerGroup="XG")
            assert json.loads(answer.body)["filterData"] == "XG@T is not online!"
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **{**fields, "index": "3"})
            assert (answer.code, answer.body) == (0, b"")
            assert answer.remark == "Index 3 of 0@T is not exist!"
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **{**fields, "queueId": "9"})
            assert (answer.code, answer.remark) == (1, "9@T is not exist!")

    run(scenario())


def test_old_files_and_queues_of_lost_topics_are_deleted_on_demand() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.send("U")
            del harness.broker.state.topics.table["U"]
            assert (await client.call(Code.CLEAN_UNUSED_TOPIC)).code == 0
            assert harness.broker.store.queues() == [("T", 0)]
            for code in (Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG):
                assert (await client.call(code)).code == 0
            assert harness.broker.store.max_offset("T", 0) == 1

    run(scenario())


def test_a_master_without_slaves_reports_that_it_has_none() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            answer = await client.call(Code.GET_BROKER_HA_STATUS)
            found = json.loads(answer.body)
            assert found["master"] is True
            assert found["masterCommitLogMaxOffset"] == harness.broker.store.max_phy_offset > 0
            assert found["haConnectionInfo"] == []
            assert (await client.call(Code.GET_BROKER_EPOCH_CACHE)).code == 1
            answer = await client.call(Code.GET_ALL_DELAY_OFFSET)
            assert "offsetTable" in json.loads(answer.body)
            answer = await client.call(Code.GET_ALL_CONSUMER_OFFSET)
            assert {"dataVersion", "offsetTable"} <= set(json.loads(answer.body))

    run(scenario())


def test_a_delayed_message_counts_where_it_waits_and_where_it_goes() -> None:
    async def scenario() -> None:
        store = SMALL_STORE
        async with running(store, message_delay_level="1s") as harness:
            client = await harness.client()
            await client.send("T", properties={"DELAY": "1"})
            stats = harness.broker.state.stats
            assert stats.counter_of_puts("SCHEDULE_TOPIC_XXXX").count == 1
            assert stats.counter_of_puts("T").count == 0
            answer = await client.pull("T", sys_flag=6, suspend_timeout_ms=5_000)
            assert answer.code == 0
            assert stats.counter_of_puts("T").count == 1

    run(scenario())


def test_many_queries_of_the_store_let_the_loop_serve_others_in_between() -> None:
    async def scenario() -> None:
        async with running() as harness:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            answers = await harness.broker.store.cold_reader.run_each(
                range(300), lambda _context, number: -number
            )
            counting.cancel()
            assert answers == [-number for number in range(300)]
            assert turns == 300 // 32

    run(scenario())
