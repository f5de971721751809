"""Queues of Apache's light topics (%LMQ%...) are left alone by verify, starts and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq.cli.main import run
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.lost_tables import TableRebuilder
from cometmq.wire.records.consume_queue_entry import ENTRY, SIZE
from store.inspected_store import SIZES, tree, verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]

SETTINGS = {"commit_log_file_bytes": 4096, "consume_queue_file_bytes": 200}


async def with_light_queue(harness: StoreHarness) -> Path:
    """A stopped store whose messages of T are in a light queue as well; its folder."""
    harness.open(**SETTINGS)
    for number in range(30):
        await harness.put(b"%d" % number)
    await harness.stop()
    entries = (harness.root / "consumequeue/T/0" / ("0" * 20)).read_bytes()[: 7 * SIZE]
    folder = harness.root / "consumequeue/%LMQ%light/0"
    folder.mkdir(parents=True)
    (folder / ("0" * 20)).write_bytes(entries.ljust(200, b"\0"))
    return folder


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_light_queue_is_not_called_damaged_nor_built_anew(
    run_scenario: Run, caplog: pytest.LogCaptureFixture, *, has_checkpoint: bool
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        folder = await with_light_queue(harness)
        if not has_checkpoint:  # as Apache's broker leaves a store
            (harness.root / "checkpoint").unlink()
        before = tree(folder)
        report = verify(harness)
        assert (report.damage, report.notes, report.repairs) == ([], [], [])
        assert (report.queues, report.light_queues) == (1, 1)
        for _ in range(2):
            harness.open(**SETTINGS)
            assert len(harness.bodies()) >= 30
            assert ("%LMQ%light", 0) not in harness.store.queues()
            await harness.put(b"more")
            await harness.store._maintenance.clean()
            await harness.stop()
        assert tree(folder) == before
        assert "anew" not in caplog.text

    run_scenario(scenario)


def test_a_queue_that_is_only_named_like_one_is_a_queue_like_others(run_scenario: Run) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open(**SETTINGS)
        for _ in range(15):
            await harness.put(b"own", "%LMQ%own")
        await harness.stop()
        path = harness.root / "consumequeue/%LMQ%own/0" / ("0" * 20)
        path.write_bytes(bytes(100) + path.read_bytes()[100:])
        harness.open(**SETTINGS)
        assert harness.bodies("%LMQ%own") == [b"own"] * 15

    run_scenario(scenario)


def test_verify_says_that_they_are_left_alone_and_a_repair_leaves_them(
    run_scenario: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        folder = await with_light_queue(harness)
        before = tree(folder)
        root = str(harness.root)
        assert run(["store", "verify", root, *SIZES]) == 0
        said = capsys.readouterr().out
        assert "1 queues of light topics (%LMQ%...) are not looked at and left alone" in said
        assert said.endswith("whole\n")
        entry = harness.root / "consumequeue/T/0" / ("0" * 20)
        entry.write_bytes(bytes(200))
        assert run(["store", "repair", root, *SIZES]) == 0
        harness.open(**SETTINGS)
        assert harness.bodies() == [b"%d" % number for number in range(30)]
        assert tree(folder) == before

    run_scenario(scenario)


def test_no_topic_is_made_of_one_when_a_table_is_made_anew(run_scenario: Run) -> None:
    async def scenario(harness: StoreHarness) -> None:
        await with_light_queue(harness)
        assert TableRebuilder(SystemFiles(), harness.root).rebuild("topics.json", 1) == ["T"]

    run_scenario(scenario)


def test_a_light_entry_to_a_damaged_record_does_not_hide_the_others(run_scenario: Run) -> None:
    async def scenario(harness: StoreHarness) -> None:
        folder = await with_light_queue(harness)
        raw = (folder / ("0" * 20)).read_bytes()
        place, size, _ = ENTRY.unpack_from(raw, 6 * SIZE)
        log = harness.log_files()[place // 4096]
        damaged = bytearray(log.read_bytes())
        damaged[place % 4096 + 4 : place % 4096 + size] = bytes(size - 4)
        log.write_bytes(damaged)
        harness.open(**SETTINGS)
        assert ("%LMQ%light", 0) not in harness.store.queues()

    run_scenario(scenario)
