"""Figures, queue contents, progress of everybody, and moving groups, as mqadmin asks for them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

from broker.harness import SMALL_STORE, new_disk, run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire import fastjson
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.bodies.offset import (
    decode_consumer_status,
    decode_reset_offset,
    encode_consumer_status,
)
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import response

if TYPE_CHECKING:
    import pytest

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


def test_what_passes_through_is_told_by_topic_group_queue_and_broker() -> None:
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


def test_pulls_and_the_time_of_puts_are_told_as_measured() -> None:
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
            told = decode_kv_table(answer.body)
            assert told["getFoundTps"].split()[0] == "0.2", "two in ten seconds"
            assert told["getMissTps"].split()[0] == "0.3"
            assert told["getTotalTps"].split()[0] == "0.5"
            assert told["getTransferredTps"].split()[0] == "0.5", "messages: three and two"
            classes = [each.rpartition(":") for each in told["putMessageDistributeTime"].split()]
            assert [name for name, _, _ in classes][::12] == ["[<=0ms]", "[10s~]"]
            assert sum(int(count) for _, _, count in classes) == 3
            assert float(told["putLatency99"]) > 0
            assert float(told["putLatency999"]) >= float(told["putLatency99"])
            assert told["putMessageEntireTimeMax"] == str(int(store.put_times.longest_s * 1000))
            assert told["putMessageFailedTimes"] == "0"
            assert told["remainHowManyDataToFlush"] == "0 B", "SYNC_FLUSH"

    run(scenario())


def test_how_far_the_key_index_is_behind_the_log_is_told() -> None:
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


def test_the_contents_of_a_queue_are_told() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for tag in ("A", "B", "C"):
                await client.send("T", properties={"TAGS": tag})
            await client.beat("CG", "T")
            fields = {"topic": "T", "queueId": "0", "index": "1", "count": "5"}
            answer = await client.call(Code.QUERY_CONSUME_QUEUE, **fields)
            told = json.loads(answer.body)
            assert (told["minQueueIndex"], told["maxQueueIndex"]) == (0, 3)
            assert [entry["tagsCode"] for entry in told["queueData"]] == [66, 67]
            assert told["queueData"][0]["physicSize"] > 0
            assert "subscriptionData" not in told
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


def test_the_progress_of_every_group_is_told_at_once() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(5):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T", max_msg_nums=4)
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            answer = await client.call(Code.GET_BROKER_CONSUME_STATS, isOrder="false")
            told = fastjson.loads(answer.body)
            assert told["brokerAddr"] == harness.broker.address
            assert (told["totalDiff"], told["totalInflightDiff"]) == (4, 3)
            found = {
                group: stats for each in told["consumeStatsList"] for group, stats in each.items()
            }
            assert len(found["CG"]) == 1
            assert found["TOOLS_CONSUMER"] == []
            answer = await client.call(Code.GET_BROKER_CONSUME_STATS, isOrder="true")
            assert fastjson.loads(answer.body)["totalDiff"] == 0, "no topic is ordered"

    run(scenario())


def test_a_group_is_put_where_another_one_is() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, offsets = await harness.client(), harness.broker.state.offsets
            for topic in ("T", "U"):
                await client.send(topic)
                offsets.commit("A", topic, 0, 1)
            fields = {"srcGroup": "A", "destGroup": "B", "offline": "false"}
            await client.beat("A", "T")
            assert (await client.call(Code.CLONE_GROUP_OFFSET, **fields)).code == 0
            assert offsets.committed("B", "T", 0) == 1
            assert offsets.committed("B", "U", 0) == -1, "the live group has not subscribed it"
            fields["offline"] = "true"
            await client.call(Code.CLONE_GROUP_OFFSET, **fields, topic="U")
            assert offsets.committed("B", "U", 0) == 1

    run(scenario())


def test_the_least_offsets_of_all_groups_are_told_beside_those_of_one() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, offsets = await harness.client(), harness.broker.state.offsets
            for group, places in {"A": (5, 3), "B": (4, 9), "C": (1, 3)}.items():
                for queue_id, offset in enumerate(places):
                    offsets.commit(group, "T", queue_id, offset)
            fields = {"topic": "T", "compareGroup": "A", "filterGroups": "C"}
            answer = await client.call(Code.QUERY_CORRECTION_OFFSET, **fields)
            assert fastjson.loads(answer.body)["correctionOffsets"] == {"0": 4, "1": 3}
            fields = {"topic": "T", "compareGroup": "C", "filterGroups": "C"}
            answer = await client.call(Code.QUERY_CORRECTION_OFFSET, **fields)
            told = fastjson.loads(answer.body)["correctionOffsets"]
            assert told == {"0": 2**63 - 1, "1": 3}, "C is behind the others in queue 0"
            assert offsets.committed("C", "T", 0) == 1, "asking changes nothing"

    run(scenario())


def test_without_resets_of_the_broker_connected_consumers_are_asked_to_move() -> None:
    async def scenario() -> None:
        async with running(use_server_side_reset_offset=False) as harness:
            client, admin = await harness.client(), await harness.client()
            for _ in range(3):
                await client.send("T")
            fields = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "false"}
            for queue_id in range(4):
                harness.broker.state.offsets.commit("CG", "T", queue_id, 2 if queue_id == 0 else 0)
            answer = await admin.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
            await client.beat("CG", "T")
            await client.asked_next()
            answer = await admin.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert decode_reset_offset(answer.body)[QUEUE] == 0
            asked = await client.asked_next()
            assert asked.code == Code.RESET_CONSUMER_CLIENT_OFFSET
            assert asked.is_oneway
            assert decode_reset_offset(asked.body)[QUEUE] == 0
            fields["timestamp"] = "-1"
            answer = await admin.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert decode_reset_offset(answer.body)[QUEUE] == 2, "forward only by force"
            fields["isForce"] = "true"
            answer = await admin.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert decode_reset_offset(answer.body)[QUEUE] == 3
            fields["group"] = "XG"
            answer = await admin.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR, "it has no offsets"

    run(scenario())


def test_the_offsets_that_consumers_hold_are_asked_of_them() -> None:
    async def scenario() -> None:
        async with running() as harness:
            one, two, admin = await harness.client(), await harness.client(), await harness.client()
            await one.beat("CG", "T", client_id="c1")
            await two.beat("CG", "T", client_id="c2")
            for client in (one, one, two):
                await client.asked_next()
            fields = {"topic": "T", "group": "CG"}
            asking = asyncio.create_task(
                admin.call(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields)
            )
            question = await one.asked_next()
            assert question.code == Code.GET_CONSUMER_STATUS_FROM_CLIENT
            assert question.ext["topic"] == "T"
            body = encode_consumer_status({QUEUE: 7}, {})
            one.channel.answer(response(question.opaque, 0, body=body))
            await two.asked_next()
            two.close()
            answer = await asking
            assert decode_consumer_status(answer.body) == ({}, {"c1": {QUEUE: 7}})
            fields["group"] = "XG"
            answer = await admin.call(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_producers_and_subscriptions_are_told() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            answer = await client.call(Code.GET_ALL_PRODUCER_INFO)
            (one,) = json.loads(answer.body)["data"]["PG"]
            assert (one["clientId"], one["language"]) == ("c1", "PYTHON")
            assert one["lastUpdateTimestamp"] > 1_700_000_000_000
            assert one["remoteIP"].startswith("/127.0.0.1:")
            for topic, told in (("T", True), ("U", False)):
                fields = {"group": "CG", "topic": topic}
                answer = await client.call(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, **fields)
                found = json.loads(answer.body)
                assert (found["group"], found["topic"]) == ("CG", topic)
                assert ("subscriptionData" in found) is told

    run(scenario())


def test_a_group_is_kept_from_a_topic_until_it_is_let_again() -> None:
    fields = {"group": "CG", "topic": "T"}

    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
            assert json.loads(answer.body) == {**fields, "readable": True}
            answer = await client.call(
                Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields, readable="false"
            )
            assert json.loads(answer.body)["readable"] is False
            answer = await client.pull("T", sys_flag=0)
            assert answer.code == ResponseCode.NO_PERMISSION
        async with running(disk=disk) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            assert (await client.pull("T", sys_flag=0)).code == ResponseCode.NO_PERMISSION
            await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields, readable="true")
            assert (await client.pull("T", sys_flag=0)).code == 0

    run(scenario())


def test_what_groups_may_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.broker.groups.consumer_groups.FORBIDDEN_MAX", 2)

    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for topic, code in (("A", 0), ("B", 0), ("C", 1)):
                fields = {"group": "CG", "topic": topic, "readable": "false"}
                answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
                assert answer.code == code
            fields = {"group": "CG", "topic": "A", "readable": "true"}
            answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
            assert answer.code == 0

    run(scenario())


def test_topics_and_groups_are_told_in_pages_to_who_asks_for_them() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            table = harness.broker.state.topics.table
            seen: list[str] = []
            version = ""
            while len(seen) < len(table):
                fields = {"topicSeq": str(len(seen)), "maxTopicNum": "4", "dataVersion": version}
                answer = await client.call(Code.GET_ALL_TOPIC_CONFIG, **fields)
                assert answer.ext["totalTopicNum"] == str(len(table))
                told = json.loads(answer.body)
                version = json.dumps(told["dataVersion"])
                seen += told["topicConfigTable"]
            assert seen == sorted(table)
            await client.send("New")
            fields = {"topicSeq": "8", "maxTopicNum": "3", "dataVersion": version}
            answer = await client.call(Code.GET_ALL_TOPIC_CONFIG, **fields)
            told = json.loads(answer.body)["topicConfigTable"]
            assert sorted(told) == sorted(table)[:3], "the table changed: from its beginning"
            fields = {"groupSeq": "0", "maxGroupNum": "2"}
            answer = await client.call(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, **fields)
            assert len(json.loads(answer.body)["subscriptionGroupTable"]) == 2
            groups = harness.broker.state.groups.table
            assert answer.ext["totalGroupNum"] == str(len(groups))
            answer = await client.call(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            assert set(json.loads(answer.body)["subscriptionGroupTable"]) == set(groups)

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


def test_a_lone_master_tells_so() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            answer = await client.call(Code.GET_BROKER_HA_STATUS)
            told = json.loads(answer.body)
            assert told["master"] is True
            assert told["masterCommitLogMaxOffset"] == harness.broker.store.max_phy_offset > 0
            assert told["haConnectionInfo"] == []
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


def test_many_questions_to_the_store_leave_the_loop_its_turns() -> None:
    async def scenario() -> None:
        async with running() as harness:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            answers = await harness.broker.store.cold_reader.read_each(
                range(300), lambda number: -number
            )
            counting.cancel()
            assert answers == [-number for number in range(300)]
            assert turns == 300 // 64

    run(scenario())
