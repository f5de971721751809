"""Timers of Apache's broker that wait in a store: a start refuses, and changes nothing."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import StoreCorrupt
from cometmq.wire.records.consume_queue_entry import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]

NOW_MS = 1_763_000_000_000
WHEEL_SLOTS = 2 * 604_800


def write_timers(
    root: Path, slots: dict[int, int], *, precision_ms: int = 1000, next_entry: int = 3
) -> None:
    """Timers in the wheel, by time in ms, as Apache's broker writes them."""
    (root / "config").mkdir(exist_ok=True)
    notes = struct.pack(">qqqq", NOW_MS, 52, next_entry, 0)
    (root / "config" / "timercheck").write_bytes(notes.ljust(4096, b"\0"))
    with (root / "timerwheel").open("wb") as wheel:
        wheel.truncate(WHEEL_SLOTS * 32)
        for ms, count in slots.items():
            wheel.seek(ms // precision_ms % WHEEL_SLOTS * 32)
            wheel.write(struct.pack(">qqqii", ms // precision_ms, 0, 52, count, 0))


def write_queue(root: Path, entries: int) -> None:
    queue = root / "consumequeue" / "rmq_sys_wheel_timer" / "0"
    queue.mkdir(parents=True)
    raw = b"".join(encode(100 * number, 100, 0) for number in range(entries))
    (queue / f"{0:020d}").write_bytes(raw.ljust(400, b"\0"))


async def with_a_store(harness: StoreHarness) -> None:
    harness.open()
    await harness.put(b"x")
    await harness.stop()


@pytest.mark.parametrize("precision_ms", [1000, 100])
def test_timers_that_wait_in_the_wheel_are_counted_and_refused(
    run_scenario: Run, precision_ms: int
):
    async def scenario(harness: StoreHarness) -> None:
        await with_a_store(harness)
        slots = {NOW_MS - 60_000: 7, NOW_MS: 2, NOW_MS + 3 * 86_400_000: 3, NOW_MS + 5_000: -1}
        write_timers(harness.root, slots, precision_ms=precision_ms)
        with pytest.raises(StoreCorrupt, match="holds 5 timer messages that Apache's broker"):
            harness.open()
        assert not (harness.root / "abort").exists()
        for name in ("timerwheel", "config/timercheck"):
            (harness.root / name).unlink()
        harness.open()
        assert harness.bodies() == [b"x"]

    run_scenario(scenario)


def test_timers_that_are_not_in_the_wheel_yet_are_refused(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        await with_a_store(harness)
        write_timers(harness.root, {})
        write_queue(harness.root, 7)
        with pytest.raises(StoreCorrupt, match="holds 4 timer messages"):
            harness.open()

    run_scenario(scenario)


def test_timers_that_are_all_delivered_are_no_reason_to_refuse(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        await with_a_store(harness)
        write_timers(harness.root, {NOW_MS - 1_000: 7, NOW_MS - 86_400_000: 2})
        harness.open()
        assert harness.bodies() == [b"x"]

    run_scenario(scenario)


def test_a_timer_wheel_without_its_checkpoint_counts_as_undelivered(run_scenario: Run):
    async def scenario(harness: StoreHarness) -> None:
        await with_a_store(harness)
        write_timers(harness.root, {NOW_MS - 1_000: 7})
        (harness.root / "config" / "timercheck").unlink()
        with pytest.raises(StoreCorrupt, match="holds 7 timer messages"):
            harness.open()

    run_scenario(scenario)
