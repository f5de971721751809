"""How far topics and groups have come."""

from __future__ import annotations

from broker.harness import run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire import fastjson
from cometmq.wire.bodies import admin as bodies
from cometmq.wire.bodies.name_lists import decode_group_list, decode_topic_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.codes import RequestCode as Code


def test_progress_of_topics_and_groups_is_reported() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T", max_msg_nums=2)
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            queue = MessageQueue("T", "b0", 0)
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
            stats = bodies.decode_topic_stats(answer.body)
            assert len(stats) == 4
            assert (stats[queue].min_offset, stats[queue].max_offset) == (0, 3)
            assert stats[queue].last_update_timestamp > 0
            answer = await client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="CG")
            progress = bodies.decode_consume_stats(answer.body).offset_table[queue]
            assert (progress.broker_offset, progress.consumer_offset) == (3, 1)
            assert progress.pull_offset == 2
            assert progress.last_timestamp > 0
            answer = await client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
            assert decode_group_list(answer.body) == ["CG"]
            answer = await client.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="CG")
            assert decode_topic_list(answer.body) == ["T"]
            fields = {"topic": "T", "group": "CG"}
            answer = await client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, **fields)
            spans = bodies.decode_time_spans(answer.body)
            assert {span.message_queue.queue_id for span in spans} == {0, 1, 2, 3}
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="Nope")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())


def test_the_progress_of_every_group_is_reported_in_one_answer() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(5):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T", max_msg_nums=4)
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            answer = await client.call(Code.GET_BROKER_CONSUME_STATS, isOrder="false")
            body = fastjson.loads(answer.body)
            assert body["brokerAddr"] == harness.broker.address
            assert (body["totalDiff"], body["totalInflightDiff"]) == (4, 3)
            found = {
                group: stats for each in body["consumeStatsList"] for group, stats in each.items()
            }
            assert len(found["CG"]) == 1
            assert found["TOOLS_CONSUMER"] == []
            answer = await client.call(Code.GET_BROKER_CONSUME_STATS, isOrder="true")
            assert fastjson.loads(answer.body)["totalDiff"] == 0, "no topic is ordered"

    run(scenario())
