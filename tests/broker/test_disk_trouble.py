"""A disk that is full or slow: nothing is acknowledged that is not kept, nothing is lost."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker.commands import properties_of, received
from broker.harness import CONFIG, STORE, new_broker, run, running
from cometmq.errors import StoreCorrupt
from cometmq.settings.store import StoreSettings
from cometmq.testing.sim_files import SimFile, SimFiles, SimWorker
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TroubledDisk(SimFiles):
    """A disk in memory that may take no more tables and records, or refuse to read the log."""

    def __init__(self) -> None:
        super().__init__(Random(1), LoopClock())
        self.is_full = False
        self.unreadable: Exception | None = None

    def write(self, path: Path, data: bytes) -> None:
        self.check_room()
        super().write(path, data)

    def open(self, path: Path, size: int, *, mapped: bool = False) -> SimFile:
        opened = super().open(path, size, mapped=mapped)
        if "commitlog" in path.parts:
            opened.read = partial(self._read, opened.read)  # type: ignore[method-assign]
            opened.write = partial(self._write, opened.write)  # type: ignore[method-assign]
        return opened

    def check_room(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _read(self, read: Callable[[int, int], bytes], at: int, length: int) -> bytes:
        if self.unreadable:
            raise self.unreadable
        return read(at, length)

    def _write(self, write: Callable[[int, bytes], None], at: int, data: bytes) -> None:
        self.check_room()
        write(at, data)


class SlowWorker(SimWorker):
    """Begins a job some time after it was given."""

    delay_s = 0.0

    def submit(self, job: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        submit = super().submit
        asyncio.get_running_loop().call_later(self.delay_s, lambda: submit(job, done))


@pytest.fixture
def disk() -> TroubledDisk:
    return TroubledDisk()


def test_a_full_disk_refuses_sends_and_takes_them_again_when_there_is_room(
    disk: TroubledDisk,
) -> None:
    async def scenario() -> None:
        async with running(disk=disk) as harness:
            client = await harness.client()
            for _ in range(3):  # the third one takes the fast path
                assert (await client.send("T", b"kept")).code == 0
            disk.is_full = True
            answers = await asyncio.gather(*(client.send("T", b"lost") for _ in range(5)))
            codes = {answer.code for answer in answers}
            assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}
            assert all(answer.remark for answer in answers)
            disk.is_full = False
            assert (await client.send("T", b"kept")).code == 0
            assert [record.body for record in await client.drain("T")] == [b"kept"] * 4

    run(scenario())


def test_a_delayed_message_that_cannot_be_delivered_is_delivered_later(disk: TroubledDisk) -> None:
    async def scenario() -> None:
        async with running(disk=disk, message_delay_level="1s") as harness:
            client = await harness.client()
            for number in range(3):
                await client.send("T", b"%d" % number, properties={"DELAY": "1"})
            disk.is_full = True
            delayed_messages = harness.broker.state.delayed_messages
            async with asyncio.timeout(10):
                while not delayed_messages.delivered:
                    await asyncio.sleep(0.01)
            disk.is_full = False
            bodies = [record.body for record in await received(client, 3)]
            assert bodies == [b"0", b"1", b"2"]

    run(scenario())


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "I/O error"), ValueError("mmap closed")])
def test_delayed_messages_come_once_the_log_can_be_read_again(
    disk: TroubledDisk, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    async def scenario() -> None:
        async with running(disk=disk, message_delay_level="1s 1s") as harness:
            client = await harness.client()
            for level in "12":
                await client.send("T", level.encode(), properties={"DELAY": level})
            disk.unreadable = problem
            while not caplog.records:
                await asyncio.sleep(0.01)
            disk.unreadable = None
            assert {record.body for record in await received(client, 2)} == {b"1", b"2"}

    run(scenario())


def test_a_damaged_record_holds_up_no_delayed_message_behind_it(
    disk: TroubledDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(disk=disk, message_delay_level="1s") as harness:
            client = await harness.client()
            for body in (b"damaged", b"whole"):
                await client.send("T", body, properties={"DELAY": "1"})
            phy_offset, _, _ = harness.broker.store.entry("SCHEDULE_TOPIC_XXXX", 0, 0) or (0, 0, 0)
            log = disk.open(STORE / "commitlog" / f"{0:020}", 0)
            log.write(phy_offset + 84, b"\x7f")  # the length of the body
            assert [record.body for record in await received(client, 1)] == [b"whole"]
            assert [(line.levelname, line.name.rpartition(".")[2]) for line in caplog.records] == [
                ("ERROR", "commit_log"),  # what is damaged
                ("ERROR", "delayed_messages"),  # what does not come for it
            ]

    run(scenario())


def test_a_dead_letter_that_could_not_be_kept_is_stored_when_asked_again(
    disk: TroubledDisk,
) -> None:
    async def scenario() -> None:
        async with running(disk=disk, dead_letter_deduplicate=True) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            dying = {"reconsume_times": 1, "max_reconsume_times": 0}
            disk.is_full = True
            answer = await client.send("%RETRY%CG", b"hard", **dying)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            disk.is_full = False
            for _ in range(2):
                assert (await client.send("%RETRY%CG", b"hard", **dying)).code == 0
            (dead,) = await client.drain("%DLQ%CG")
            assert properties_of(dead)["UNIQ_KEY"] == "K1"

    run(scenario())


@pytest.mark.parametrize("sends", [1, 4])
def test_a_slow_disk_answers_that_the_message_is_stored_but_not_yet_safe(sends: int) -> None:
    async def scenario() -> None:
        worker = SlowWorker(Random(1))
        store = StoreSettings(
            commit_log_file_bytes=1 << 20, flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=50
        )
        async with running(store, worker=lambda _name: worker) as harness:
            client = await harness.client()
            for _ in range(sends):
                assert (await client.send("T")).code == 0
            worker.delay_s = 0.4
            answer = await client.send("T")
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert answer.remark
            assert answer.ext["queueOffset"] == str(sends)
            assert len(answer.ext["msgId"]) == 32
            worker.delay_s = 0.0
            count = sends + 2
            while (await client.send("T")).code == ResponseCode.FLUSH_DISK_TIMEOUT:
                count += 1  # the slow flush is still under way
            assert len(await client.drain("T")) == count

    run(scenario())


def test_a_topic_that_cannot_be_written_down_is_not_made(disk: TroubledDisk) -> None:
    async def scenario() -> None:
        async with running(disk=disk) as harness:
            client = await harness.client()
            disk.is_full = True
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
            disk.is_full = False
            assert (await client.send("New")).code == 0

    run(scenario())


def test_offsets_that_cannot_be_written_are_written_later(
    disk: TroubledDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(disk=disk) as harness:
            offsets = harness.broker.state.offsets
            offsets.commit("CG", "T", 0, 1)
            disk.is_full = True
            await offsets.save_in_thread()
            assert not offsets.save()
            lines = [line.getMessage() for line in caplog.records]
            assert len(lines) == 2
            assert all("consumerOffset.json is not written: " in line for line in lines)
            disk.is_full = False
            await offsets.save_in_thread()
            assert not offsets.save(), "nothing is left to write"

    run(scenario())


def test_offsets_that_cannot_be_written_hold_up_no_stop(
    disk: TroubledDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        broker = new_broker(disk=disk)
        await broker.start()
        broker.state.offsets.commit("CG", "T", 0, 1)
        disk.make_dir(CONFIG / "consumerOffset.json.tmp")
        await broker.stop()
        (line,) = caplog.records
        assert "consumerOffset.json is not written: " in line.message
        assert disk.read(STORE / "abort") is None

    run(scenario())


def test_a_start_on_a_full_disk_deletes_nothing_where_a_table_is_bad() -> None:
    settings = StoreSettings(commit_log_file_bytes=4096, max_hash_slot_num=500, max_index_num=2000)

    async def scenario() -> None:
        disk = TroubledDisk()
        async with running(settings, disk=disk) as harness:
            client = await harness.client()
            for _ in range(30):
                assert (await client.send("T", b"x" * 500)).code == 0
        before = disk.names(STORE / "commitlog")
        assert len(before) > 3
        disk.used = disk.total
        for name in ("consumerFilter.json", "delayOffset.json", "topics.json"):
            whole = [(path, disk.read(path)) for path in (CONFIG / name, CONFIG / f"{name}.bak")]
            for path, _ in whole:
                disk.write(path, b"[]")
            with pytest.raises(StoreCorrupt, match=name):
                new_broker(settings, disk=disk)
            assert disk.names(STORE / "commitlog") == before
            for path, data in whole:
                disk.delete(path) if data is None else disk.write(path, data)
        async with running(settings, disk=disk):
            assert len(disk.names(STORE / "commitlog")) == 1

    run(scenario())
