"""Committed offsets: the requests, the resets, the file; and a model that must agree."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.harness import SMALL_STORE, new_disk, run, running, stored_table
from cometmq.broker.groups.consumer_offsets import NO_OFFSET, ConsumerOffsets
from cometmq.runtime.system import SystemFiles
from cometmq.store.json_file import JsonFile
from cometmq.wire.bodies.offset import decode_reset_offset
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    from broker.commands import Client


async def committed(client: Client, topic: str = "T", queue: int = 0, **more: Any) -> Any:
    fields = {"consumerGroup": "CG", "topic": topic, "queueId": str(queue), **more}
    return await client.call(RequestCode.QUERY_CONSUMER_OFFSET, **fields)


async def commit(client: Client, offset: int, **more: str) -> Any:
    fields = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    return await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **{**fields, **more})


def test_a_committed_offset_is_told_and_the_last_writer_wins() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            for offset in (7, 3):
                assert (await commit(client, offset)).code == 0
                assert (await committed(client)).ext == {"offset": str(offset)}

    run(scenario())


def test_a_new_group_starts_at_0_while_the_queue_is_young() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            assert (await committed(client)).ext == {"offset": "0"}
            answer = await committed(client, setZeroIfNotFound="false")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert (await committed(client, queue=1)).code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


def test_a_new_group_is_not_sent_to_the_start_of_a_queue_that_begins_on_disk() -> None:
    async def scenario() -> None:
        async with running(replace(SMALL_STORE, memory_percent=0)) as harness:
            client = await harness.client()
            await client.send("T")
            assert (await committed(client)).code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "Nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "Nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "-1"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_commit_that_makes_no_sense_is_refused(fields: dict[str, str], code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            assert (await commit(client, 1, **fields)).code == code
            assert harness.broker.state.offsets.snapshot() == {}

    run(scenario())


def test_offsets_are_on_disk_after_a_stop_and_known_after_a_start() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            await commit(client, 5)
        stored = stored_table(disk, "consumerOffset.json")
        assert stored["offsetTable"] == {"T@CG": {"0": 5}}
        async with running(disk=disk) as harness:
            assert (await committed(await harness.client())).ext == {"offset": "5"}

    run(scenario())


def test_a_file_that_apache_wrote_is_read(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text(
        '{\n\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},\n'
        '\t"groupTopicMap":{"G":["T"]},\n\t"offsetTable":{"T@G":{0:250,1:251\n\t\t}\n\t}\n}'
    )
    offsets = ConsumerOffsets(JsonFile(config / "consumerOffset.json", SystemFiles()), lambda: 1)
    assert offsets.snapshot() == {"T@G": {0: 250, 1: 251}}
    assert offsets.version.counter == 3


async def reset(client: Client, **fields: str) -> Any:
    wanted = {"topic": "T", "group": "CG", "timestamp": "-1", "isForce": "true", **fields}
    return await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **wanted)


def test_a_reset_moves_all_queues_and_swallows_commits_until_it_is_fetched() -> None:
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
            assert (await commit(client, 1)).code == 0
            assert (await committed(client)).ext == {"offset": "3"}
            pulled = await client.pull("T", queue_offset=1)
            assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
            assert pulled.ext["nextBeginOffset"] == "3"
            assert (await commit(client, 1)).code == 0
            assert (await committed(client)).ext == {"offset": "1"}

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
            assert (await committed(client)).ext == {"offset": "3"}
            await client.pull("T", queue_offset=3, sys_flag=5, commit_offset=2)
            assert (await committed(client)).ext == {"offset": "2"}

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


def test_queues_tell_their_ends_and_times() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            queue = {"topic": "T", "queueId": "0"}
            answer = await client.call(RequestCode.GET_MAX_OFFSET, **queue)
            assert answer.ext == {"offset": "3"}
            answer = await client.call(RequestCode.GET_MIN_OFFSET, **queue)
            assert answer.ext == {"offset": "0"}
            answer = await client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
            stored_ms = int(answer.ext["timestamp"])
            for at, boundary, offset in (
                (stored_ms, "LOWER", "0"),
                (stored_ms + 600_000, "LOWER", "3"),
                (stored_ms - 600_000, "LOWER", "0"),
                (stored_ms + 600_000, "UPPER", "2"),
                (stored_ms + 600_000, "upper", "2"),  # Java reads it in any case
                (stored_ms - 600_000, "UPPER", "0"),
            ):
                fields = {**queue, "timestamp": str(at), "boundaryType": boundary}
                answer = await client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields)
                assert answer.ext == {"offset": offset}, (at - stored_ms, boundary)

    run(scenario())


GROUPS = st.sampled_from(["G", "H"])
TOPICS = st.sampled_from(["T", "U"])
QUEUES = st.integers(0, 2)
OFFSETS = st.integers(0, 9)


class NoFile:
    """A file that keeps what was saved in memory."""

    def __init__(self) -> None:
        self.value: Any = None

    def load(self) -> Any:
        return self.value

    def save(self, value: Any) -> None:
        self.value = json.loads(json.dumps(value))


class OffsetsAgreeWithAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.file: Any = NoFile()
        self.offsets = ConsumerOffsets(self.file, lambda: 1)
        self.kept: dict[tuple[str, str, int], int] = {}
        self.resets: dict[tuple[str, str, int], int] = {}

    @rule(group=GROUPS, topic=TOPICS, queue=QUEUES, offset=OFFSETS)
    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.offsets.commit(group, topic, queue, offset)
        if (group, topic, queue) not in self.resets:
            self.kept[group, topic, queue] = offset

    @rule(group=GROUPS, topic=TOPICS, queue=QUEUES, offset=OFFSETS)
    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.offsets.reset(group, topic, queue, offset)
        self.kept[group, topic, queue] = self.resets[group, topic, queue] = offset

    @rule(group=GROUPS, topic=TOPICS, queue=QUEUES)
    def pull(self, group: str, topic: str, queue: int) -> None:
        fetched = self.offsets.take_reset(group, topic, queue)
        assert fetched == self.resets.pop((group, topic, queue), None)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.offsets.forget_topic(topic)
        for table in (self.kept, self.resets):
            for key in [key for key in table if key[1] == topic]:
                del table[key]

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.offsets.forget_group(group)
        for table in (self.kept, self.resets):
            for key in [key for key in table if key[0] == group]:
                del table[key]

    @rule()
    def restart(self) -> None:
        self.offsets.save()
        self.offsets = ConsumerOffsets(self.file, lambda: 1)
        self.resets.clear()

    @invariant()
    def every_offset_is_what_the_model_says(self) -> None:
        for group in ("G", "H"):
            for topic in ("T", "U"):
                for queue in range(3):
                    expected = self.kept.get((group, topic, queue), NO_OFFSET)
                    assert self.offsets.committed(group, topic, queue) == expected


OffsetsAgreeWithAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestOffsetsAgreeWithAModel = OffsetsAgreeWithAModel.TestCase


class Watched(JsonFile):
    """A file that notes how many threads write it at once."""

    now = most = 0

    def write(self, data: bytes) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.02)
        super().write(data)
        self.now -= 1


def test_the_file_is_written_by_one_thread_at_a_time_and_ends_with_the_newest(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        file = Watched(tmp_path / "consumerOffset.json", SystemFiles())
        offsets = ConsumerOffsets(file, lambda: 1)
        saves = []
        for number in range(5):
            offsets.commit("G", "T", 0, number)
            saves.append(asyncio.create_task(offsets.save_in_thread()))
            await asyncio.sleep(0.005)
        await asyncio.gather(*saves)
        assert file.most == 1
        found = ConsumerOffsets(JsonFile(file.path, SystemFiles()), lambda: 1)
        assert found.committed("G", "T", 0) == 4

    run(scenario())
