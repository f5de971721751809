"""Which timers wait: filed under their slots, found again after stops, crashes and by Apache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from struct import Struct, pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import StoreCorrupt
from cometmq.settings.store import StoreSettings
from cometmq.store.timers.timer_index import NewTimer, TimerIndex
from cometmq.store.timers.timer_log import KIND_RECALL, KIND_ROLL, KIND_TIMER
from cometmq.store.timers.timer_wheel import SLOTS
from cometmq.testing.sim_files import SimFiles

ROOT = Path("/store")
SETTINGS = replace(StoreSettings(), timer_log_file_bytes=4096)
SLOT = Struct(">qqqii")
NOW = 1_700_000_000_000


def opened(files: SimFiles, **settings: int) -> TimerIndex:
    return TimerIndex(files, ROOT, replace(SETTINGS, **settings), NOW, lambda number: number)


def begun(files: SimFiles, **settings: int) -> TimerIndex:
    index = opened(files, **settings)
    if not index.is_begun:
        save(index)
    return index


def save(index: TimerIndex, scan_from: int = 7) -> None:
    snapshot = index.snapshot(scan_from)
    index.write(snapshot, NOW)
    index.end_save(snapshot, is_written=True, log_first=0)


def add(index: TimerIndex, slot_ms: int, number: int, *, is_recall: bool = False) -> None:
    index.add(NewTimer(slot_ms, NOW, (number, 100, 0), is_recall), NOW)
    index.queue_offset += 1


def chain(index: TimerIndex, slot_ms: int) -> list[int]:
    """The messages of a slot, the oldest first."""
    found, at = list[int](), index.last_record(slot_ms)
    while at >= 0:
        record = index.log.record(at)
        assert record is not None
        assert record.slot_ms == slot_ms
        found.append(record.phy_offset)
        at = record.before
    return found[::-1]


def drained(index: TimerIndex) -> dict[int, list[int]]:
    slots = {}
    while index.has_slots:
        slot_ms = index.first_slot(NOW + (1 << 40))
        assert slot_ms is not None
        slots[slot_ms] = chain(index, slot_ms)
        index.finish(slot_ms)
    return slots


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), max_size=300), st.integers(0, 9))
def test_what_was_saved_is_found_again_and_the_rest_is_dropped(timers, saves):
    files = SimFiles(Random(1))
    index, kept = begun(files), 0
    for number, (slot, _) in enumerate(timers):
        add(index, NOW + 1_000 * slot, number)
        if saves and number % (10 * saves) == 0:
            save(index)
            kept = number + 1
    files.kill()
    again = opened(files)
    assert again.queue_offset == kept
    wanted: dict[int, list[int]] = {}
    for number, (slot, _) in enumerate(timers[:kept]):
        wanted.setdefault(NOW + 1_000 * slot, []).append(number)
    assert again.waiting == kept
    assert drained(again) == dict(sorted(wanted.items()))


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_amid_a_save_leaves_a_state_that_was_saved(seed):
    rng = Random(seed)
    files = SimFiles(rng)
    index, number, states = begun(files), 0, {}
    states[0] = {}
    for _ in range(4):
        for _ in range(rng.randrange(120)):
            add(index, NOW + 1_000 * rng.randrange(9), number)
            number += 1
        save(index)
    snapshot_at = number
    for _ in range(50):
        add(index, NOW + 1_000 * rng.randrange(9), number)
        number += 1
    snapshot = index.snapshot(7)
    index.log.sync(snapshot.segments)
    index._wheel.write(dict(list(snapshot.changed.items())[: rng.randrange(10)]))
    files.power_cut()
    again = opened(files)
    assert again.queue_offset == snapshot_at
    found = drained(again)
    assert sorted(each for slot in found.values() for each in slot) == list(range(snapshot_at))
    assert all(slot == sorted(slot) for slot in found.values())


def test_slots_are_passed_in_their_order():
    index = begun(SimFiles(Random(1)))
    for slot in (5, 2, 9):
        add(index, NOW + 1_000 * slot, slot)
    assert index.first_slot(NOW + 2_000) is None
    assert index.next_ms == NOW + 2_000
    assert list(drained(index)) == [NOW + 1_000 * slot for slot in (2, 5, 9)]
    assert index.first_slot(NOW + 20_000) is None
    assert index.next_ms == NOW + 20_000


def test_a_slot_that_is_not_safe_is_delivered_again():
    index = begun(SimFiles(Random(1)))
    add(index, NOW, 1)
    add(index, NOW + 1_000, 2)
    assert index.first_slot(NOW + 5_000) == NOW
    slot = index.finish(NOW)
    index.restore(NOW, slot)
    assert index.waiting == 2
    assert drained(index) == {NOW: [1], NOW + 1_000: [2]}


def test_recalls_and_moves_are_marked():
    index = begun(SimFiles(Random(1)), timer_roll_window_slot=10)
    add(index, NOW + 3_000, 1)
    add(index, NOW + 3_000, 2, is_recall=True)
    add(index, NOW + 30_000, 3)
    assert index.count_at(NOW + 3_000) == 0
    last = index.log.record(index.last_record(NOW + 3_000))
    assert last is not None
    assert last.kind == KIND_TIMER | KIND_RECALL
    assert index.first_slot(NOW + 4_000) == NOW + 3_000
    index.finish(NOW + 3_000)
    assert index.first_slot(NOW + 11_000) == NOW + 10_000
    moved = index.log.record(index.last_record(NOW + 10_000))
    assert moved is not None
    assert moved.kind == KIND_TIMER | KIND_ROLL


def test_the_files_are_laid_out_as_apaches():
    files = SimFiles(Random(1))
    index = begun(files)
    add(index, NOW + 5_000, 77)
    save(index)
    record = files.read(ROOT / "timerlog" / ("0" * 20))
    assert record is not None
    assert len(record) == 4096
    assert record[:52] == pack(">iqiqiqiiq", 52, -1, 1, NOW, 5_000, 77, 100, 0, 0)
    wheel = files.read(ROOT / "timerwheel")
    assert wheel is not None
    assert len(wheel) == 38_707_200
    unit = NOW // 1_000 + 5
    assert SLOT.unpack_from(wheel, unit % 1_209_600 * 32) == (unit, 0, 0, 1, 0)
    check = files.read(ROOT / "config" / "timercheck")
    assert check is not None
    assert len(check) == 4096
    assert Struct(">qqqq").unpack_from(check) == (NOW, 52, 1, 1)


def test_a_record_that_does_not_fit_begins_the_next_file():
    files = SimFiles(Random(1))
    index = begun(files)
    for number in range(100):
        add(index, NOW, number)
    first = files.read(ROOT / "timerlog" / ("0" * 20))
    assert first is not None
    assert Struct(">iqi").unpack_from(first, 78 * 52) == (40, 0, 0xCBD43194 - (1 << 32))
    assert chain(index, NOW) == list(range(100))


def test_files_whose_messages_have_left_the_log_are_deleted():
    files = SimFiles(Random(1))
    index = begun(files)
    for number in range(200):
        add(index, NOW, number)
    snapshot = index.snapshot(0)
    index.write(snapshot, NOW)
    index.end_save(snapshot, is_written=True, log_first=78)
    assert len(files.names(ROOT / "timerlog")) == 2


def test_a_mark_that_another_broker_left_behind_is_not_believed():
    files = SimFiles(Random(1))
    index = begun(files)
    save(index, 99)
    assert opened(files).scan_from == 99
    path = ROOT / "config" / "timercheck"
    check = bytearray(files.read(path) or b"")
    check[7] ^= 1
    files.write(path, bytes(check))
    assert opened(files).scan_from is None


def test_messages_that_apaches_log_of_timers_lost_are_taken_in_again():
    files = SimFiles(Random(1))
    index = begun(files)
    for number in range(10):
        add(index, NOW, number)
    index.queue_offset = 14
    save(index)
    assert opened(files).queue_offset == 14
    path = ROOT / "config" / "timercheck"
    files.write(path, (files.read(path) or b"")[:56].ljust(4096, b"\0"))
    assert opened(files).queue_offset == 10


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("config/timercheck", "timercheck is missing"),
        ("timerlog/" + "0" * 20, "lacks files"),
    ],
)
def test_files_that_are_missing_are_named_with_the_way_out(gone, said):
    files = SimFiles(Random(1))
    index = begun(files)
    add(index, NOW, 1)
    save(index)
    files.delete(ROOT / gone)
    with pytest.raises(StoreCorrupt, match=said) as refused:
        opened(files)
    assert "move timerwheel, timerlog and config/timercheck out of it" in str(refused.value)
    for name in ("timerwheel", "config/timercheck", "timerlog/" + "0" * 20):
        files.delete(ROOT / name)
    assert not opened(files).is_begun


def test_another_precision_is_refused():
    files = SimFiles(Random(1))
    begun(files)
    with pytest.raises(StoreCorrupt, match="timerPrecisionMs=1000"):
        opened(files, timer_precision_ms=100)


def test_a_wheel_of_another_size_is_refused():
    files = SimFiles(Random(1))
    begun(files)
    files.write(ROOT / "timerwheel", b"x")
    with pytest.raises(StoreCorrupt, match="has 1 bytes"):
        opened(files)


def test_a_moment_a_whole_wheel_ahead_does_not_overwrite_a_slot_that_waits():
    files = SimFiles(Random(1))
    index = begun(files)
    add(index, NOW, 1)
    span_ms = SLOTS * 1_000
    late = NOW + span_ms  # the store lay there for fourteen days
    index.add(NewTimer(late, late - 5_000, (2, 100, 0)), late - 5_000)
    save(index)
    files.kill()
    again = opened(files)
    assert again.first_slot(late + 1) == NOW
    assert chain(again, NOW) == [1]
    again.finish(NOW)
    moved = again.first_slot(late + 1)
    assert moved == late - 1_000
    record = again.log.record(again.last_record(moved))
    assert record is not None
    assert record.kind == KIND_TIMER | KIND_ROLL
