"""Topics and groups are on disk before their makers are answered, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from broker.commands import Harness
from broker.sockets import new_broker, run
from cometmq.broker.cluster.table_writer import TableWriter
from cometmq.errors import Reject
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.json_file import JsonFile
from cometmq.wire.bodies.group import encode_group_config
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TABLES = ("topics.json.tmp", "subscriptionGroup.json.tmp")


class Gated(SystemFiles):
    """Real files; writes of one table wait until they may, and may then be refused."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.may_go.set()
        self.is_full = False
        self.begun = threading.Event()
        self.written: list[bytes] = []

    def write(self, path: Path, data: bytes) -> None:
        if path.name in TABLES:
            self.begun.set()
            assert self.may_go.wait(10)
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.written.append(data)
        super().write(path, data)

    async def is_writing(self) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0.001)

    def shut(self) -> None:
        self.begun.clear()
        self.may_go.clear()


@asynccontextmanager
async def gated(root: Path) -> AsyncIterator[tuple[Harness, Gated]]:
    files = Gated()
    broker = new_broker(root, files=files)
    await broker.start()
    harness = Harness(broker)
    try:
        yield harness, files
    finally:
        files.is_full = False
        files.may_go.set()
        harness.close_clients()
        await broker.stop()


def topics_of(root: Path) -> set[str]:
    found = json.loads((root / "config" / "topics.json").read_text())
    return set(found["topicConfigTable"])


def test_a_topic_is_on_disk_before_its_first_send_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, files):
            client, other = await harness.client(), await harness.client()
            assert (await other.send("Old")).code == 0
            files.shut()
            made = asyncio.create_task(client.send("T"))
            await files.is_writing()
            second = asyncio.create_task(other.send("T"))
            assert (await other.send("Old")).code == 0, "it waits for nobody"
            assert not made.done()
            assert not second.done(), "it stands on the same topic"
            assert "T" not in topics_of(tmp_path)
            files.may_go.set()
            assert (await made).code == (await second).code == 0
            assert "T" in topics_of(tmp_path)

    run(scenario())


def test_many_changes_at_once_cost_two_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, files):
            client = await harness.client()
            files.shut()
            files.written.clear()
            first = asyncio.create_task(client.send("T0"))
            await files.is_writing()
            sends = [asyncio.create_task(client.send(f"T{n}")) for n in range(1, 100)]
            while not {f"T{n}" for n in range(100)} <= harness.broker.state.topics.table.keys():
                await asyncio.sleep(0.001)
            files.may_go.set()
            answers = await asyncio.gather(first, *sends)
            assert {answer.code for answer in answers} == {0}
            assert len(files.written) == 2
            assert {f"T{n}" for n in range(100)} <= topics_of(tmp_path)

    run(scenario())


def test_groups_are_on_disk_before_they_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, files):
            client = await harness.client()
            files.shut()
            body = encode_group_config(SubscriptionGroupConfig(group_name="G", retry_queue_nums=3))
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            making = asyncio.create_task(client.call(code, None, body))
            await files.is_writing()
            assert not making.done()
            files.may_go.set()
            assert (await making).code == 0
            found = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_text())
            assert found["subscriptionGroupTable"]["G"]["retryQueueNums"] == 3
            assert (
                await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G")
            ).code == 0
            found = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_text())
            assert "G" not in found["subscriptionGroupTable"]

    run(scenario())


def test_forbidding_a_second_time_waits_for_the_same_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, files):
            client = await harness.client()
            files.shut()
            code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
            forbid = {"group": "G", "topic": "T", "readable": "false"}
            first = asyncio.create_task(client.call(code, **forbid))
            await files.is_writing()
            second = asyncio.create_task(client.call(code, **forbid))
            await asyncio.sleep(0)  # it is sent
            assert (await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
            assert not first.done()
            assert not second.done()
            files.may_go.set()
            assert (await first).code == (await second).code == 0

    run(scenario())


def test_a_heartbeat_is_answered_once_its_groups_and_retry_topics_are_on_disk(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, _):
            client = await harness.client()
            assert (await client.beat("G", "T")).code == 0
            assert "%RETRY%G" in topics_of(tmp_path)
            found = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_text())
            assert "G" in found["subscriptionGroupTable"]

    run(scenario())


def test_a_change_that_the_disk_refuses_is_undone_and_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (harness, files):
            client = await harness.client()
            topics = harness.broker.state.topics
            assert (await client.send("T", default_topic_queue_nums=2)).code == 0
            before = dict(topics.table)
            files.shut()
            files.is_full = True
            change = {"topic": "T", "readQueueNums": "7", "writeQueueNums": "7", "perm": "6"}
            change |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
            code = RequestCode.UPDATE_AND_CREATE_TOPIC
            calls = [asyncio.create_task(client.call(code, **change))]
            await files.is_writing()
            calls.append(asyncio.create_task(client.send("New")))
            calls.append(asyncio.create_task(client.call(code, **change | {"readQueueNums": "9"})))
            while topics.table["T"].read_queue_nums != 9:
                await asyncio.sleep(0.001)
            files.may_go.set()
            for answer in await asyncio.gather(*calls):
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert answer.remark is not None
                assert "topics of this broker cannot be written: No space left" in answer.remark
            assert topics.table == before
            files.is_full = False
            assert (await client.send("New")).code == 0
            assert "New" in topics_of(tmp_path)

    run(scenario())


def test_before_a_broker_runs_a_change_is_written_at_once(tmp_path: Path) -> None:
    files, table = Gated(), {"t": {"n": 1}}
    file = JsonFile(tmp_path / "topics.json", files)
    writer = TableWriter(file, "numbers", lambda: lambda: JsonFile.encode(table))
    writer.record_change("n", lambda: None)
    assert file.load("t", dict) == table
    files.is_full = True
    undone: list[str] = []
    with pytest.raises(Reject, match="the numbers of this broker cannot be written"):
        writer.record_change("n", lambda: undone.append("n"))
    assert undone == ["n"]


def test_whoever_waits_for_a_write_that_fails_in_an_unforeseen_way_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that cannot be started, say: nobody may wait for ever."""

    async def scenario() -> None:
        async with gated(tmp_path) as (harness, _files):
            client, writer = await harness.client(), harness.broker.state.topics.writer
            with monkeypatch.context() as patch:
                patch.setattr(writer, "_write", no_thread)
                refused = await client.send("New")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "can't start new thread" in str(refused.remark)
            assert harness.broker.state.topics.get("New") is None, "it is undone"
            assert (await client.send("New")).code == 0
            assert "New" in topics_of(tmp_path)

    run(scenario())


def no_thread(_make: object) -> None:
    raise RuntimeError("can't start new thread")
