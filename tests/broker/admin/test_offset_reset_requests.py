"""Moving groups to other offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.harness import run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire import fastjson
from cometmq.wire.bodies.offset import (
    decode_reset_offset,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    from broker.commands import Client


QUEUE = MessageQueue("T", "b0", 0)


async def reset(client: Client, **fields: str) -> Any:
    wanted = {"topic": "T", "group": "CG", "timestamp": "-1", "isForce": "true", **fields}
    return await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **wanted)


def test_a_reset_moves_all_queues_and_commits_are_ignored_until_it_is_fetched() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            answer = await reset(client)
            moved = decode_reset_offset(answer.body)
            assert {queue.queue_id: offset for queue, offset in moved.items()} == {
                0: 3, 1: 0, 2: 0, 3: 0,
            }  # fmt: skip
            assert (await client.commit(1)).code == 0
            assert (await client.committed()).ext == {"offset": "3"}
            pulled = await client.pull("T", queue_offset=1)
            assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
            assert pulled.ext["nextBeginOffset"] == "3"
            assert (await client.commit(1)).code == 0
            assert (await client.committed()).ext == {"offset": "1"}

    run(scenario())


def test_the_pull_that_fetches_a_reset_does_not_commit_its_old_place() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            assert (await reset(client)).code == 0
            pulled = await client.pull("T", queue_offset=1, sys_flag=5, commit_offset=1)
            assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
            assert (await client.committed()).ext == {"offset": "3"}
            await client.pull("T", queue_offset=3, sys_flag=5, commit_offset=2)
            assert (await client.committed()).ext == {"offset": "2"}

    run(scenario())


def test_a_reset_to_an_offset_must_lie_in_the_queue() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            for offset, code in (("2", 0), ("4", 0), ("5", ResponseCode.SYSTEM_ERROR)):
                answer = await reset(client, queueId="0", offset=offset)
                assert answer.code == code, answer
            assert (await reset(client, topic="Nope")).code == ResponseCode.TOPIC_NOT_EXIST
            answer = await reset(client, group="Nobody")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

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


def test_the_least_offsets_of_all_groups_are_reported_beside_those_of_one() -> None:
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
            least = fastjson.loads(answer.body)["correctionOffsets"]
            assert least == {"0": 2**63 - 1, "1": 3}, "C is behind the others in queue 0"
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
