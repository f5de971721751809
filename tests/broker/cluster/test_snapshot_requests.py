"""A copy of a running store and its broker agree: what stays, and what is copied again."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest

from broker.sockets import run, running
from cometmq.broker.replication.role_file import RoleFile
from cometmq.errors import NotAStore, StoreError, StoreLocked
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
from cometmq.settings.store import StoreSettings
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.store.recovery.unreplicated import cut_log
from cometmq.store.snapshots.snapshot_request import SnapshotFiles
from cometmq.store.snapshots.store_snapshot import StoreSnapshot
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker.commands import Client

SMALL = StoreSettings(
    commit_log_file_bytes=64 << 10, max_hash_slot_num=500, max_index_num=2000,
    max_message_bytes=32 << 10, consume_queue_file_bytes=2000,
)  # fmt: skip
YEAR_S = 31_536_000


def snapshot(
    store: Path, target: Path, copied: Callable[[int], None] = lambda _: None, answer_s: float = 30
) -> StoreSnapshot:
    files = SystemFiles()
    source = StoreDirectory(files, store)
    return StoreSnapshot(
        files, SystemClock(), source, target, time.sleep, copied, answer_s=answer_s
    )


async def fill(client: Client, topic: str, count: int) -> None:
    for number in range(count):
        await client.send(topic, b"%d" % number + bytes(1000), queue_id=number % 3)


async def bodies(client: Client, topic: str) -> set[bytes]:
    found = [await client.drain(topic, queue_id=queue_id) for queue_id in range(3)]
    return {record.body.rstrip(b"\0") for records in found for record in records}


def test_old_files_stay_as_long_as_a_snapshot_is_taken(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def scenario() -> None:
        async with running(store, SMALL) as harness:
            await fill(await harness.client(), "Orders", 300)
            await harness.broker.store._parts.maintenance.checkpoint_queues()
            log = store / "commitlog"
            for path in log.iterdir():
                os.utime(path, (time.time() - YEAR_S,) * 2)
            before = {path.name for path in log.iterdir()}
            asked = SnapshotFiles(SystemFiles(), store)
            lock = SystemFiles().lock(asked.lock_path)
            assert lock is not None
            asked.ask("one")
            async with asyncio.timeout(20):
                while (answer := asked.answer("one")) is None:
                    await asyncio.sleep(0.01)
            assert answer.log_end == harness.broker.store.max_phy_offset
            await harness.broker.store.clean()
            assert before <= {path.name for path in log.iterdir()}  # and the next one, made ahead
            lock.release()  # as the system does when its process dies
            async with asyncio.timeout(20):
                while asked.asked() is not None:
                    await asyncio.sleep(0.01)
            await harness.broker.store.clean()
            assert not before <= {path.name for path in log.iterdir()}

    run(scenario())


def test_a_topic_deleted_and_made_again_amid_a_snapshot_has_its_new_messages_only(
    tmp_path: Path,
) -> None:
    store, target = tmp_path / "store", tmp_path / "copy"

    async def take() -> None:
        async with running(store, SMALL) as harness:
            client, loop = await harness.client(), asyncio.get_running_loop()
            for topic in ("Kept", "Gone"):
                await client.create_topic(topic)
                await fill(client, topic, 100)
            async with asyncio.timeout(20):
                while not any((store / "consumequeue" / "Gone").glob("*/0*")):
                    await asyncio.sleep(0.01)
            begun = False

            async def delete_and_make_again() -> None:
                await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Gone")
                await client.create_topic("Gone")
                for number in range(30):
                    await client.send("Gone", b"new%d" % number, queue_id=number % 3)
                await fill(client, "Late", 60)  # which the log has beyond what was copied first

            def amid(_size: int) -> None:
                nonlocal begun
                if not begun and (target / "consumequeue" / "Gone").exists():
                    begun = True
                    asyncio.run_coroutine_threadsafe(delete_and_make_again(), loop).result(30)

            done = await asyncio.to_thread(snapshot(store, target, amid).run)
            assert begun
            assert done.was_running

    async def look() -> None:
        async with running(target, SMALL) as harness:
            client = await harness.client()
            assert await bodies(client, "Kept") == {b"%d" % number for number in range(100)}
            assert await bodies(client, "Gone") == {b"new%d" % number for number in range(30)}

    run(take())
    run(look())


def test_a_stopped_store_is_copied_and_nobody_starts_it_meanwhile(tmp_path: Path) -> None:
    store, target, seen = tmp_path / "store", tmp_path / "copy", list[str]()

    async def put() -> None:
        async with running(store, SMALL) as harness:
            await fill(await harness.client(), "Orders", 50)

    async def look() -> None:
        async with running(target, SMALL) as harness:
            assert len(await bodies(await harness.client(), "Orders")) == 50

    def amid(_size: int) -> None:
        try:
            StoreDirectory(SystemFiles(), store).take()
        except StoreLocked as problem:
            seen.append(str(problem))

    run(put())
    assert not snapshot(store, target, amid).run().was_running
    assert seen
    assert not (target / "abort").exists()
    run(look())
    run(put())  # the store is free again


def test_what_cannot_be_copied_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, full = tmp_path / "store", tmp_path / "full"

    async def put() -> None:
        async with running(store, SMALL) as harness:
            await fill(await harness.client(), "Orders", 10)

    run(put())
    full.mkdir()
    (full / "file").write_text("mine")
    with pytest.raises(StoreError, match="is not empty"):
        snapshot(store, full).run()
    with pytest.raises(StoreError, match="inside the store"):
        snapshot(store, store / "copy").run()
    with pytest.raises(NotAStore, match="is no store"):
        snapshot(full, tmp_path / "copy").run()
    monkeypatch.setattr(StoreSnapshot, "needed_bytes", lambda _self: 1 << 60)
    with pytest.raises(StoreError, match=r"needs \d+ MiB, and the disk .* has \d+ MiB free"):
        snapshot(store, tmp_path / "copy").run()
    assert not (tmp_path / "copy").exists()


def test_a_broker_that_does_not_answer_is_named_as_such(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def scenario() -> None:
        async with running(store, SMALL) as harness:
            await fill(await harness.client(), "Orders", 10)
            await harness.broker._background.stop()  # as one that knows nothing of snapshots
            with pytest.raises(StoreError, match=r"did not answer within 0\.2 s"):
                await asyncio.to_thread(snapshot(store, tmp_path / "copy", answer_s=0.2).run)
            other = SystemFiles().lock(store / "snapshot")
            assert other is not None
            with pytest.raises(StoreLocked, match="another snapshot"):
                await asyncio.to_thread(snapshot(store, tmp_path / "copy").run)
            other.release()

    run(scenario())


def test_a_log_in_another_place_and_timers_are_in_the_copy(tmp_path: Path) -> None:
    store, log, target = tmp_path / "store", tmp_path / "log", tmp_path / "copy"
    elsewhere = replace(SMALL, store_path_commit_log=str(log))
    due_ms = int(time.time() * 1000) + 1_000_000

    async def take() -> None:
        async with running(store, elsewhere) as harness:
            client = await harness.client()
            await fill(client, "Orders", 150)
            answer = await client.send(
                "Later", b"due", properties={"TIMER_DELIVER_MS": str(due_ms)}
            )
            assert answer.code == 0, answer.remark
            done = await asyncio.to_thread(snapshot(store, target).run)
            assert done.log_end == harness.broker.store.max_phy_offset
        assert not (store / "commitlog").exists()

    async def look() -> None:
        async with running(target, SMALL) as harness:
            assert len(await bodies(await harness.client(), "Orders")) == 150
            async with asyncio.timeout(20):  # those behind the checkpoint are taken in again
                while harness.broker.state.timers.waiting != 1:
                    await asyncio.sleep(0.01)

    run(take())
    run(look())


def test_a_target_that_leads_into_the_store_is_refused(tmp_path: Path) -> None:
    store, link, log = tmp_path / "store", tmp_path / "link", tmp_path / "log"
    link.symlink_to(store)
    elsewhere = replace(SMALL, store_path_commit_log=str(log))

    async def scenario() -> None:
        async with running(store, elsewhere) as harness:
            await fill(await harness.client(), "Orders", 10)
            for target in (link / "copy", tmp_path / "x" / ".." / "store" / "copy", log / "copy"):
                with pytest.raises(StoreError, match="inside the store"):
                    await asyncio.to_thread(snapshot(store, target).run)
            with pytest.raises(StoreError, match="inside the store"):
                await asyncio.to_thread(snapshot(link, store / "copy").run)
            assert not any(log.glob("copy"))
            assert not any(store.glob("copy"))

    run(scenario())


def test_a_stopped_store_whose_log_is_elsewhere_is_not_copied_without_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    elsewhere = replace(SMALL, store_path_commit_log=str(tmp_path / "log"))

    async def put() -> None:
        async with running(store, elsewhere) as harness:
            await fill(await harness.client(), "Orders", 10)

    run(put())
    with pytest.raises(StoreError, match=r"holds no commit log; .* --commit-log"):
        snapshot(store, tmp_path / "copy").run()
    assert not (store / "commitlog").exists()
    run(put())  # the store is free again


def test_the_log_of_a_stopped_store_is_copied_once(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def put() -> None:
        async with running(store, SMALL) as harness:
            await fill(await harness.client(), "Orders", 50)

    run(put())
    whole = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert snapshot(store, tmp_path / "copy").run().copied_bytes <= whole


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_broker_that_starts_again_amid_a_snapshot_is_waited_for(
    tmp_path: Path, *, is_cut: bool
) -> None:
    """Also one that gets another role, for which its log is cut and written on."""
    store, target, files = tmp_path / "store", tmp_path / "copy", SystemFiles()
    source, was_stopped, again = StoreDirectory(files, store), Event(), Event()

    def cut(log_end: int) -> None:
        cut_log(files, source, SMALL.commit_log_file_bytes, log_end, "stamp")
        role = RoleFile(store, files)
        role.keep(role.kept._replace(promised=7))

    async def take() -> None:
        async with AsyncExitStack() as stack:
            loop = asyncio.get_running_loop()
            first = await stack.enter_async_context(running(store, SMALL))
            client = await first.client()
            await fill(client, "Orders", 30)
            kept_end = first.broker.store.max_phy_offset
            await fill(client, "More", 20)

            async def start() -> None:
                harness = await stack.enter_async_context(running(store, SMALL))
                await fill(await harness.client(), "Late", 10)

            def amid(_size: int) -> None:
                if not was_stopped.is_set():
                    was_stopped.set()
                    asyncio.run_coroutine_threadsafe(first.broker.stop(), loop).result(30)

            def wait(seconds: float) -> None:
                time.sleep(seconds)
                if was_stopped.is_set() and not again.is_set():  # the command has asked again
                    if is_cut:
                        cut(kept_end)
                    again.set()
                    asyncio.run_coroutine_threadsafe(start(), loop).result(30)

            copying = StoreSnapshot(
                files, SystemClock(), StoreDirectory(files, store), target, wait, amid
            )
            assert (await asyncio.to_thread(copying.run)).was_running
            assert again.is_set()

    async def look() -> None:
        async with running(target, SMALL) as harness:
            client = await harness.client()
            assert len(await bodies(client, "Orders")) == 30
            assert len(await bodies(client, "More")) == (0 if is_cut else 20)
            assert len(await bodies(client, "Late")) == 10

    run(take())
    run(look())
