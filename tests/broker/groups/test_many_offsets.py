"""Very many offsets: bounded, forgotten with their topic, encoded without holding up the loop."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.commands import Client, pull_header
from broker.harness import run, running
from cometmq.broker.groups.consumer_offsets import NO_OFFSET, ConsumerOffsets
from cometmq.runtime.time_slices import SLICE_S
from cometmq.store.json_file import JsonFile
from cometmq.testing.sim_files import SimFiles
from cometmq.wire import fastjson
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import pytest

NAMES = st.sampled_from(["G", "H", 'q"', "ü", "%RETRY%G"])


def new_offsets(entries_max: int = 1_000_000) -> ConsumerOffsets:
    file = JsonFile(Path("/config/consumerOffset.json"), SimFiles(Random(1)))
    return ConsumerOffsets(file, lambda: 1, entries_max=entries_max)


def content_of(offsets: ConsumerOffsets) -> dict[str, Any]:
    """What the file and the answer should hold."""
    version = {"counter": 0, "stateVersion": 0, "timestamp": 1}
    groups = {group: topics for group in offsets._topics if (topics := offsets.topics_of(group))}
    return {
        "dataVersion": version,
        "groupTopicMap": groups,
        "offsetTable": offsets.snapshot(),
        "pullOffsetTable": {key: dict(queues) for key, queues in offsets._pulled.items()},
    }


@settings(max_examples=100)
@example([("pull", "G", "H", 0), ("commit", "G", "G", 0), ("commit", "G", "H", 0)])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "pull", "topic", "group"]), NAMES, NAMES, st.integers(0, 2)
        ),
        max_size=30,
    )
)
def test_a_table_is_encoded_in_turns_as_files_and_answers_are(
    steps: list[tuple[str, str, str, int]],
) -> None:
    async def scenario() -> None:
        offsets = new_offsets()
        for kind, group, topic, queue_id in steps:
            if kind == "commit":
                offsets.commit(group, topic, queue_id, 7)
            elif kind == "pull":
                offsets.note_pull(group, topic, queue_id, 9)
            elif kind == "topic":
                offsets.forget_topic(topic)
            else:
                offsets.forget_group(group)
        now = content_of(offsets)
        pairs = list(offsets.each_pair())
        for group in {group for _, group, _, _ in steps}:
            assert set(offsets.topics_of(group)) == {each for each, one in pairs if one == group}
            assert set(offsets.groups_of(group)) == {each for one, each in pairs if one == group}
        file = await offsets.encode_in_turns(as_file=True)
        assert file == offsets.encode(as_file=True) == JsonFile.encode(now)
        answer = await offsets.encode_in_turns()
        assert fastjson.loads(answer) == fastjson.loads(fastjson.dumps(now))
        assert len(answer) == len(fastjson.dumps(now))

    run(scenario())


def test_beyond_the_bound_no_offset_is_taken_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offsets = new_offsets(entries_max=3)
    for number in range(6):
        offsets.commit("G", f"T{number}", 0, 1)
        offsets.note_pull("G", f"T{number}", 0, 2)
    assert len(offsets.snapshot()) == 3
    assert len(content_of(offsets)["pullOffsetTable"]) == 3
    assert offsets.committed("G", "T5", 0) == NO_OFFSET == offsets.pulled("G", "T5", 0)
    offsets.commit("G", "T0", 0, 5)
    assert offsets.committed("G", "T0", 0) == 5
    assert [text for text in caplog.messages if "no more are taken" in text] == caplog.messages
    assert len(caplog.messages) == 1
    offsets.forget_topic("T0")
    offsets.commit("G", "T5", 0, 1)
    assert offsets.committed("G", "T5", 0) == 1


def test_what_pulls_noted_of_a_deleted_topic_or_group_is_forgotten() -> None:
    offsets = new_offsets()
    offsets.note_pull("G", "T", 0, 1)
    offsets.note_pull("H", "T", 0, 1)
    offsets.note_pull("G", "U", 0, 1)
    offsets.forget_topic("T")
    assert content_of(offsets)["pullOffsetTable"] == {"U@G": {0: 1}}
    offsets.forget_group("G")
    assert content_of(offsets)["pullOffsetTable"] == {}


def test_the_queues_of_a_group_that_pulls_note_are_bounded_too() -> None:
    offsets = new_offsets(entries_max=3)
    for queue_id in range(6):
        offsets.note_pull("G", "T", queue_id, 2)
    assert content_of(offsets)["pullOffsetTable"] == {"T@G": {0: 2, 1: 2, 2: 2}}
    offsets.note_pull("G", "T", 1, 5)
    assert offsets.pulled("G", "T", 1) == 5


def test_a_reset_that_finds_no_room_is_refused_and_is_not_pending() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, offsets = await harness.client(), harness.broker.state.offsets
            assert (await client.send("T")).code == 0
            await client.beat("CG", "T")
            offsets._entries_max = 2
            fields = {"topic": "T", "group": "CG", "timestamp": "-1"}
            refused = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "keeps no more offsets" in str(refused.remark)
            pending = [queue for queue in range(4) if offsets.has_reset("CG", "T", queue)]
            assert pending == [0, 1]

    run(scenario())


def test_others_have_their_turns_while_thirty_thousand_offsets_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a loop whose time goes on by a slice with each look at it."""

    async def scenario() -> None:
        offsets, looks = new_offsets(), count()
        for number in range(30_000):
            offsets.commit(f"G{number % 100}", f"T{number // 100}", 0, number)
        work: asyncio.Future[bytes] = asyncio.ensure_future(offsets.encode_in_turns())
        loop, turns = asyncio.get_running_loop(), 0
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: next(looks) * SLICE_S)
            while not work.done():
                await asyncio.sleep(0)
                turns += 1
        found = fastjson.loads(await work)
        assert isinstance(found, dict)
        assert len(found["offsetTable"]) == 30_000
        assert turns > 30_000 / 20, "between any few of them"

    asyncio.run(scenario())


def test_the_next_save_of_a_table_waits_ten_times_as_long_as_its_encoding_took() -> None:
    async def scenario() -> None:
        offsets = new_offsets()
        loop = asyncio.get_running_loop()
        offsets.commit("G", "T", 0, 1)
        offsets._rest_until = loop.time() + 5
        await offsets.save_in_thread()
        assert offsets.save()  # at the stop it is written in any case
        offsets.commit("G", "T", 0, 2)
        await asyncio.sleep(6)
        await offsets.save_in_thread()
        assert not offsets.save()

    run(scenario())


async def many_topics(client: Client, count: int) -> None:
    for number in range(count):
        answer = await client.send(f"T{number:04}", b"x")
        assert answer.code == 0


def test_a_large_table_is_answered_in_turns_with_the_same_bytes() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await many_topics(client, 201)
            all_at_once = await asyncio.gather(
                *(client.call(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(5))
            )
            assert len({answer.body for answer in all_at_once}) == 1
            found = fastjson.loads(all_at_once[0].body)
            topics = harness.broker.state.topics
            assert set(found["topicConfigTable"]) == set(topics.table)  # type: ignore[call-overload, index]
            await client.send("Later", b"x")
            again = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert b'"Later"' in again.body
            await client.call(RequestCode.PULL_MESSAGE, pull_header("Later"))
            offsets = await client.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
            assert offsets.body == harness.broker.state.offsets.encode()
            harness.broker.state.large_tables._bytes_max = 1000
            await client.send("Latest", b"x")
            refused = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "ask for pages of it" in str(refused.remark)

    run(scenario())
