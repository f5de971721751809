"""Committed offsets: the table, its file, and a model that must agree."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.harness import run
from cometmq.broker.groups.consumer_offsets import NO_OFFSET, ConsumerOffsets
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.json_file import JsonFile
from cometmq.testing.sim_files import SimFiles


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


GROUPS = st.sampled_from(["G", "H"])
TOPICS = st.sampled_from(["T", "U"])
QUEUES = st.integers(0, 2)
OFFSETS = st.integers(0, 9)


def file_in_memory() -> JsonFile:
    return JsonFile(Path("/config/consumerOffset.json"), SimFiles(Random(1)))


class OffsetsAgreeWithAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.file = file_in_memory()
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


def test_offsets_behind_the_end_of_a_queue_that_lost_messages_go_back_to_it(caplog):
    offsets = ConsumerOffsets(file_in_memory(), lambda: 1)
    for group, queue_id, offset in (("G", 0, 9), ("G", 1, 4), ("H", 0, 3)):
        offsets.commit(group, "T", queue_id, offset)
    offsets.commit("G", "%LMQ%x", 0, 7)
    offsets.keep_within(
        lambda topic, queue_id: {("T", 0): 5, ("T", 1): 4}.get((topic, queue_id), 0)
    )
    assert offsets.queues_of("G", "T") == {0: 5, 1: 4}
    assert offsets.queues_of("H", "T") == {0: 3}
    assert offsets.queues_of("G", "%LMQ%x") == {0: 7}
    assert "T queue 0 ends at 5, and group G had come to 9" in caplog.text
    assert len(caplog.records) == 1
