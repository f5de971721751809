"""A disk that is full or slow: nothing is acknowledged that is not kept, nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import Harness, properties_of
from broker.delivery.test_delayed_messages import received
from broker.harness import SMALL_STORE
from broker.sockets import new_broker, run
from cometmq.broker.app import Broker
from cometmq.runtime.system import SystemFiles
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from cometmq.runtime.ports import OpenFile


class Troubled(SystemFiles):
    """Real files; those of the log may refuse to be written or read and be slow to be synced."""

    def __init__(self) -> None:
        self.is_full = False
        self.unreadable: Exception | None = None
        self.sync_s = 0.0

    def write(self, path: Path, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, data)

    def open(self, path: Path, size: int, *, mapped: bool = False) -> OpenFile:
        opened = super().open(path, size, mapped=mapped)
        return Log(opened, self) if "commitlog" in path.parts else opened  # type: ignore[return-value]


class Log:
    """A file of the log."""

    def __init__(self, file: OpenFile, trouble: Troubled) -> None:
        self._file, self._trouble = file, trouble

    def write(self, at: int, data: bytes) -> None:
        if self._trouble.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(at, data)

    def read(self, at: int, length: int) -> bytes:
        if self._trouble.unreadable:
            raise self._trouble.unreadable
        return self._file.read(at, length)

    def sync(self) -> None:
        time.sleep(self._trouble.sync_s)
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@asynccontextmanager
async def troubled(
    root: Path, store: StoreSettings = SMALL_STORE, **settings: Any
) -> AsyncIterator[tuple[Harness, Troubled]]:
    files = Troubled()
    chosen = BrokerSettings(
        store_path_root_dir=str(root), listen_port=0, broker_name="b0", **settings
    )
    broker = Broker.open(chosen, store, files=files)
    await broker.start()
    harness = Harness(broker)
    try:
        yield harness, files
    finally:
        files.is_full, files.sync_s = False, 0.0
        harness.close_clients()
        await broker.stop()


def test_a_full_disk_refuses_sends_and_takes_them_again_when_there_is_room(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (harness, files):
            client = await harness.client()
            for _ in range(3):  # the third one goes the short way
                assert (await client.send("T", b"kept")).code == 0
            files.is_full = True
            answers = await asyncio.gather(*(client.send("T", b"lost") for _ in range(5)))
            codes = {answer.code for answer in answers}
            assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}
            assert all(answer.remark for answer in answers)
            files.is_full = False
            assert (await client.send("T", b"kept")).code == 0
            assert [record.body for record in await client.drain("T")] == [b"kept"] * 4

    run(scenario())


def test_a_delayed_message_that_cannot_be_delivered_is_delivered_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path, message_delay_level="1s") as (harness, files):
            client = await harness.client()
            for number in range(3):
                await client.send("T", b"%d" % number, properties={"DELAY": "1"})
            files.is_full = True
            delayed_messages = harness.broker.state.delayed_messages
            async with asyncio.timeout(10):
                while not delayed_messages.delivered:
                    await asyncio.sleep(0.01)
            files.is_full = False
            bodies = [record.body for record in await received(client, 3)]
            assert bodies == [b"0", b"1", b"2"]

    run(scenario())


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "I/O error"), ValueError("mmap closed")])
def test_delayed_messages_come_once_the_log_can_be_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path, message_delay_level="1s 1s") as (harness, files):
            client = await harness.client()
            for level in "12":
                await client.send("T", level.encode(), properties={"DELAY": level})
            files.unreadable = problem
            while not caplog.records:
                await asyncio.sleep(0.01)
            files.unreadable = None
            assert {record.body for record in await received(client, 2)} == {b"1", b"2"}

    run(scenario())


def test_a_damaged_record_holds_up_no_delayed_message_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path, message_delay_level="1s") as (harness, _):
            client = await harness.client()
            for body in (b"damaged", b"whole"):
                await client.send("T", body, properties={"DELAY": "1"})
            phy_offset, _, _ = harness.broker.store.entry("SCHEDULE_TOPIC_XXXX", 0, 0) or (0, 0, 0)
            with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
                file.seek(phy_offset + 84)  # the length of the body
                file.write(b"\x7f")
            assert [record.body for record in await received(client, 1)] == [b"whole"]
            assert [line.levelname for line in caplog.records] == ["ERROR"]

    run(scenario())


def test_a_dead_letter_that_could_not_be_kept_is_buried_when_asked_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path, dead_letter_deduplicate=True) as (harness, files):
            client = await harness.client()
            await client.beat("CG", "T")
            dying = {"reconsume_times": 1, "max_reconsume_times": 0}
            files.is_full = True
            answer = await client.send("%RETRY%CG", b"hard", **dying)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            files.is_full = False
            for _ in range(2):
                assert (await client.send("%RETRY%CG", b"hard", **dying)).code == 0
            (dead,) = await client.drain("%DLQ%CG")
            assert properties_of(dead)["UNIQ_KEY"] == "K1"

    run(scenario())


@pytest.mark.parametrize("sends", [1, 4])
def test_a_slow_disk_answers_that_the_message_is_stored_but_not_yet_safe(
    tmp_path: Path, sends: int
) -> None:
    async def scenario() -> None:
        store = StoreSettings(
            commit_log_file_bytes=1 << 20, flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=50
        )
        async with troubled(tmp_path, store) as (harness, files):
            client = await harness.client()
            for _ in range(sends):
                assert (await client.send("T")).code == 0
            files.sync_s = 0.4
            answer = await client.send("T")
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert answer.remark
            assert answer.ext["queueOffset"] == str(sends)
            assert len(answer.ext["msgId"]) == 32
            files.sync_s = 0.0
            count = sends + 2
            while (await client.send("T")).code == ResponseCode.FLUSH_DISK_TIMEOUT:
                count += 1  # the slow flush is still under way
            assert len(await client.drain("T")) == count

    run(scenario())


def test_a_topic_that_cannot_be_written_down_is_not_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (harness, files):
            client = await harness.client()
            files.is_full = True
            answer = await client.send("New")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "topics" in (answer.remark or "")
            assert harness.broker.state.topics.get("New") is None
            groups = harness.broker.state.groups
            answer = await client.beat("NewGroup", "SELF_TEST_TOPIC")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert groups.get("NewGroup") is None
            answer = await client.pull("SELF_TEST_TOPIC", consumer_group="NewGroup")
            assert answer.code == ResponseCode.PULL_NOT_FOUND, "reading asks for no room"
            await groups.writer.wait_idle()
            assert groups.get("NewGroup") is None
            files.is_full = False
            assert (await client.send("New")).code == 0

    run(scenario())


def test_offsets_that_cannot_be_written_are_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (harness, files):
            offsets = harness.broker.state.offsets
            offsets.commit("CG", "T", 0, 1)
            files.is_full = True
            await offsets.save_in_thread()
            assert not offsets.save()
            lines = [line.message for line in caplog.records]
            assert len(lines) == 2
            assert all("consumerOffset.json is not written: " in line for line in lines)
            files.is_full = False
            await offsets.save_in_thread()
            assert not offsets.save(), "nothing is left to write"

    run(scenario())


def test_offsets_that_cannot_be_written_hold_up_no_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        broker = new_broker(tmp_path)
        await broker.start()
        broker.state.offsets.commit("CG", "T", 0, 1)
        (tmp_path / "config" / "consumerOffset.json.tmp").mkdir(parents=True)
        await broker.stop()
        (line,) = caplog.records
        assert "consumerOffset.json is not written: " in line.message
        assert not (tmp_path / "abort").exists()

    run(scenario())
