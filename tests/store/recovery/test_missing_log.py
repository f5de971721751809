"""A start whose log is elsewhere, missing or empty: it works with it, or refuses and keeps all."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import SettingsError, StoreCorrupt, StoreLocked
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.settings.store import StoreSettings
from cometmq.store.recovery.inspection import Inspection
from store.inspected_store import tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]
    Leave = Callable[[StoreHarness], Awaitable[None]]


async def stop(harness: StoreHarness) -> None:
    await harness.stop()


async def crash(harness: StoreHarness) -> None:
    await harness.stop()
    harness.open()
    await harness.crash()


HOW = pytest.mark.parametrize("leave", [stop, crash])


async def fill(harness: StoreHarness, count: int = 100) -> list[bytes]:
    bodies = [b"T %d" % number for number in range(count)]
    for body in bodies:
        await harness.put(body)
    return bodies


@HOW
def test_a_log_that_was_moved_is_found_where_the_setting_says(run_scenario: Run, leave: Leave):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        bodies = await fill(harness)
        await leave(harness)
        elsewhere = harness.root.parent / "disk2" / "log"
        elsewhere.parent.mkdir()
        shutil.move(harness.root / "commitlog", elsewhere)
        harness.open(store_path_commit_log=str(elsewhere))
        assert harness.bodies() == bodies
        await harness.put(b"more")
        assert harness.bodies() == [*bodies, b"more"]
        assert not (harness.root / "commitlog").exists()
        await harness.stop()
        with Inspection(harness.root, SystemFiles(), commit_log=elsewhere) as inspection:
            assert inspection.verify().damage == []

    run_scenario(scenario)


@pytest.mark.parametrize("what", ["no directory", "no file", "an empty file", "zeros"])
@HOW
def test_a_start_without_its_log_refuses_and_deletes_nothing(
    run_scenario: Run, leave: Leave, what: str
):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        bodies = await fill(harness)
        await leave(harness)
        kept = harness.root.parent / "kept"
        log = harness.root / "commitlog"
        shutil.move(log, kept)
        if what != "no directory":
            log.mkdir()
        if what in ("an empty file", "zeros"):
            (log / f"{0:020d}").write_bytes(bytes(16384 if what == "zeros" else 0))
        before = tree(harness.root)
        with pytest.raises(StoreCorrupt, match="set storePathCommitLog to the directory") as caught:
            harness.open()
        assert str(log) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert tree(harness.root) == before
        shutil.rmtree(log, ignore_errors=True)
        shutil.move(kept, log)
        harness.open()
        assert harness.bodies() == bodies

    run_scenario(scenario)


def test_what_the_refusal_advises_begins_with_an_empty_log(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        await fill(harness)
        await harness.stop()
        shutil.rmtree(harness.root / "commitlog")
        shutil.rmtree(harness.root / "consumequeue")
        with pytest.raises(StoreCorrupt, match="checkpoint"):  # which counts its messages
            harness.open()
        shutil.rmtree(harness.root / "index")
        (harness.root / "checkpoint").unlink()
        harness.open()
        assert harness.bodies() == []

    run_scenario(scenario)


def test_a_setting_that_hides_a_log_is_refused(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        bodies = await fill(harness)
        await harness.stop()
        for name in ("consumequeue", "index"):
            shutil.rmtree(harness.root / name)
        (harness.root / "checkpoint").unlink()
        with pytest.raises(StoreCorrupt, match=r"has a commit log in .* remove the setting"):
            harness.open(store_path_commit_log=str(harness.root.parent / "new"))
        assert not (harness.root.parent / "new").exists()
        harness.open(store_path_commit_log="")
        assert harness.bodies() == bodies

    run_scenario(scenario)


def test_two_stores_do_not_share_a_log(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        await fill(harness, 3)
        first = harness.store
        log = harness.root / "commitlog"
        harness.root = harness.root.parent / "other"
        with pytest.raises(StoreLocked, match=f"the commit log {log} is in use"):
            harness.open(store_path_commit_log=str(log))
        await first.stop()

    run_scenario(scenario)


def test_a_crash_before_the_first_flush_leaves_no_message_to_refuse_for(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        await fill(harness, 3)
        await harness.crash()
        shutil.rmtree(harness.root / "commitlog")
        (harness.root / "checkpoint").unlink()
        harness.open()
        assert harness.bodies() == []

    run_scenario(scenario)


def test_a_log_in_several_directories_is_refused():
    with pytest.raises(SettingsError, match="storePathCommitLog is '/a,/b'; it must be one"):
        StoreSettings(store_path_commit_log="/a,/b")


async def _files(harness):
    harness.open(commit_log_file_bytes=4096)
    for number in range(60):
        await harness.put(b"%d" % number + bytes(200))
    await harness.stop()
    return harness.log_files()


def test_a_file_of_the_log_that_was_cut_is_an_error_at_the_start(run_scenario, caplog):
    async def scenario(harness):
        files = await _files(harness)
        with files[1].open("r+b") as file:
            file.truncate(1000)
        harness.open(commit_log_file_bytes=4096)
        said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert said[0].startswith(f"{files[1]} has 1000 bytes, not 4096: what it held behind them")
        assert len(said) == 1

    run_scenario(scenario)


def test_a_start_that_is_refused_leaves_every_file_as_long_as_it_was(run_scenario):
    async def scenario(harness):
        files = await _files(harness)
        (harness.root / "consumequeue/T/1").mkdir()
        queue = harness.root / "consumequeue/T/0" / ("0" * 20)
        for path in (files[-1], queue):
            with path.open("r+b") as file:
                file.truncate(150)
        before = {path: path.stat().st_size for path in harness.root.rglob("*") if path.is_file()}
        with pytest.raises(StoreCorrupt, match="was written up to byte"):
            harness.open(commit_log_file_bytes=4096)
        after = {path: path.stat().st_size for path in harness.root.rglob("*") if path.is_file()}
        assert after == before
        assert (harness.root / "consumequeue/T/1").exists()

    run_scenario(scenario)
