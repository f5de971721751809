"""Deleting a topic: a crash at any step of it leaves the whole topic or nothing of it."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from broker.broker_process import BrokerProcess, client_of
from broker.commands import Client, Harness
from broker.sockets import new_broker, run
from cometmq.errors import RemotingError
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.settings.store import StoreSettings
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.wire.command import Command

TINY = StoreSettings(
    commit_log_file_bytes=1 << 16, consume_queue_file_bytes=2000, message_index_enable=False
)
BODIES = [b"%d" % number for number in range(6)]


class Watched(SystemFiles):
    """Real files; whoever asks is called before each step that changes the disk."""

    def __init__(self) -> None:
        self.before: Callable[[str, Path], None] = lambda _step, _path: None

    def write(self, path: Path, data: bytes) -> None:
        self.before("write", path)
        super().write(path, data)

    def rename(self, old: Path, new: Path) -> None:
        self.before("rename", new)
        super().rename(old, new)

    def delete(self, path: Path) -> None:
        self.before("delete", path)
        super().delete(path)

    def sync_dir(self, directory: Path) -> None:
        self.before("sync", directory)
        super().sync_dir(directory)


async def start(root: Path, files: SystemFiles | None = None) -> Harness:
    broker = new_broker(root, TINY, files=files)
    await broker.start()
    return Harness(broker)


async def stop(harness: Harness) -> None:
    harness.close_clients()
    await harness.broker.stop()


async def fill(client: Client, topic: str) -> None:
    for body in BODIES:
        answer = await client.send(
            topic, body, queue_id=int(body) % 2, properties={"UNIQ_KEY": "K"}
        )
        assert answer.code == 0, answer


async def bodies(client: Client, topic: str) -> list[bytes]:
    found = [
        record.body for queue in range(2) for record in await client.drain(topic, queue_id=queue)
    ]
    return sorted(found)


async def delete(client: Client, topic: str) -> Command:
    return await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


async def judge(root: Path) -> bool:
    """Whether the topic outlived the crash; either way all of it did, or nothing."""
    harness = await start(root)
    try:
        client = await harness.client()
        is_there = harness.broker.state.topics.get("T") is not None
        queues = {topic for topic, _ in harness.broker.store.queues()}
        assert ("T" in queues) == is_there
        if is_there:
            assert await bodies(client, "T") == BODIES
        else:
            assert (await client.send("T", b"second life")).ext["queueOffset"] == "0"
            assert await bodies(client, "T") == [b"second life"]
        assert await bodies(client, "U") == BODIES
        assert harness.broker.store.deletion.unfinished() == []
    finally:
        await stop(harness)
    return is_there


def test_a_kill_at_any_step_of_a_deletion_leaves_all_of_the_topic_or_nothing(
    tmp_path: Path,
) -> None:
    files = Watched()
    root = tmp_path / "store"
    steps: list[str] = []

    def freeze(step: str, path: Path) -> None:
        """What a kill now would leave."""
        shutil.copytree(root, tmp_path / f"at{len(steps)}")
        steps.append(f"{step} {path.name}")

    async def scenario() -> None:
        harness = await start(root, files)
        client = await harness.client()
        await fill(client, "T")
        await fill(client, "U")
        await harness.broker.store._maintenance.write_queues()
        files.before = freeze
        assert (await delete(client, "T")).code == 0
        files.before = lambda _step, _path: None
        freeze("answer", root)
        await stop(harness)

        outcomes = [await judge(tmp_path / f"at{number}") for number in range(len(steps))]
        assert outcomes[0], "nothing had happened yet"
        assert not outcomes[-1], "it was answered"
        assert outcomes == sorted(outcomes, reverse=True), list(zip(steps, outcomes, strict=True))
        assert len([step for step in steps if step == "rename deletedTopics.json"]) == 2
        assert "rename topics.json" in steps
        assert "delete 0" in steps, "the queues go in between"

    run(scenario())


def test_a_topic_that_was_made_again_is_not_deleted_by_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await start(tmp_path / "store")
        client = await harness.client()
        await fill(client, "T")
        assert (await delete(client, "T")).code == 0
        await fill(client, "T")
        shutil.copytree(tmp_path / "store", tmp_path / "copy")  # what a kill now would leave
        await stop(harness)
        harness = await start(tmp_path / "copy")
        client = await harness.client()
        assert await bodies(client, "T") == BODIES
        await stop(harness)

    run(scenario())


@pytest.mark.parametrize("name", ["deletedTopics.json.tmp", "topics.json.tmp"])
def test_a_deletion_that_the_disk_refuses_leaves_the_topic_as_it_was(
    tmp_path: Path, name: str
) -> None:
    files = Watched()

    def refuse(step: str, path: Path) -> None:
        if step == "write" and path.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario() -> None:
        harness = await start(tmp_path, files)
        client = await harness.client()
        await fill(client, "T")
        files.before = refuse
        answer = await delete(client, "T")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left" in (answer.remark or "")
        files.before = lambda _step, _path: None
        assert await bodies(client, "T") == BODIES
        assert (await client.send("T", b"more")).code == 0
        await harness.broker.store._maintenance.write_queues()
        harness.close_clients()
        await harness.broker.stop()
        harness = await start(tmp_path)
        client = await harness.client()
        assert await bodies(client, "T") == [*BODIES, b"more"]
        assert (await delete(client, "T")).code == 0
        assert (await client.pull("T")).code == ResponseCode.TOPIC_NOT_EXIST
        await stop(harness)

    run(scenario())


def test_a_topic_is_not_made_again_while_it_is_being_deleted(tmp_path: Path) -> None:
    files = Watched()

    async def scenario() -> None:
        is_held, may_go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold(_step: str, path: Path) -> None:
            if path.name == "topics.json.tmp":
                loop.call_soon_threadsafe(is_held.set)
                assert may_go.wait(10)

        harness = await start(tmp_path, files)
        client, other = await harness.client(), await harness.client()
        await fill(client, "T")
        files.before = hold
        deleting = asyncio.create_task(delete(client, "T"))
        await is_held.wait()
        answer = await other.send("T", b"too early")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "the topic T is being deleted; try again later"
        may_go.set()
        assert (await deleting).code == 0
        assert (await other.send("T", b"in time")).ext["queueOffset"] == "0"
        await stop(harness)

    run(scenario())


def test_topics_that_nobody_knows_are_kept_until_they_are_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        harness = await start(tmp_path)
        client = await harness.client()
        await fill(client, "T")
        await fill(client, "U")
        await stop(harness)
        for path in tmp_path.glob("config/topics.json*"):
            path.write_text('{"topicConfigTable":{}}')
        harness = await start(tmp_path)
        assert "topics.json does not name" in caplog.text
        assert {topic for topic, _ in harness.broker.store.queues()} == {"T", "U"}
        client = await harness.client()
        harness.broker.state.topics.ensure("U", 2)
        assert await bodies(client, "U") == BODIES
        assert (await client.call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert {topic for topic, _ in harness.broker.store.queues()} == {"U"}
        await stop(harness)

    run(scenario())


async def make_and_delete(client: Client, answered: dict[str, bool]) -> None:
    """Make topics, and delete every other one, until killed; note what was answered last."""
    number = len(answered)
    while True:
        topic = f"T{number}"
        answered.pop(topic, None)
        try:
            assert (await client.send(topic, b"x")).code == 0
            if number % 2:
                assert (await delete(client, topic)).code == 0
        except RemotingError:
            return  # this one may be there or not
        answered[topic] = number % 2 == 0
        number += 1


def test_topics_made_and_deleted_under_kills_are_whole_or_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        answered: dict[str, bool] = {}
        for _ in range(3):
            process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
            client = await client_of(process)
            await process.kill_amid(make_and_delete(client, answered), lambda: len(answered), 8)
            client.close()
        process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
        client = await client_of(process)
        assert len(answered) >= 24
        for topic, is_there in answered.items():
            answer = await client.pull(topic)
            wanted = ResponseCode.SUCCESS if is_there else ResponseCode.TOPIC_NOT_EXIST
            assert answer.code == wanted, (topic, answer)
        client.close()
        process.kill()

    run(scenario())
