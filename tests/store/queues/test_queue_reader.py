"""What a filter by properties makes of a disk with damaged records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq.store.get_result import GetResult, GetStatus
from cometmq.store.message_draft import MessageDraft
from cometmq.store.property_filter import PropertyFilter
from cometmq.store.queues import queue_reader
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from store.conftest import StoreHarness

RED, BLUE = b"colour\x01red\x02", b"colour\x01blue\x02"


async def put(harness: StoreHarness, *properties: bytes, length: int = 5) -> None:
    for each in properties:
        harness.store.put(MessageDraft("T", 0, b"b" * length, each))
    await harness.wait_until_durable()


def red(harness: StoreHarness, offset: int) -> GetResult:
    """What one read finds for who wants red messages."""
    judge = PropertyFilter(lambda raw: RED in raw, 800)
    return harness.store.get("T", 0, offset, 32, 1 << 20, None, judge)


def numbers(got: GetResult) -> list[int]:
    return [record.queue_offset for record in stored.iterate(got.body)]


def damage(harness: StoreHarness, *offsets: int) -> None:
    """Change a bit of the property of each of these messages."""
    (path,) = harness.log_files()
    raw = bytearray(path.read_bytes())
    at = -1
    for number in range(max(offsets) + 1):
        at = raw.find(b"colour\x01", at + 1)
        if number in offsets:
            raw[at + 8] ^= 1
    path.write_bytes(raw)


def test_a_filter_passes_over_no_damaged_record_without_a_word(run_scenario, caplog):
    async def scenario(harness):
        harness.open()
        await put(harness, RED, BLUE, RED, RED, BLUE, RED)
        await harness.stop()
        damage(harness, 2, 3, 4)
        harness.open()
        for _ in range(2):
            got = red(harness, 0)
            assert (got.status, numbers(got), got.next_offset) == (GetStatus.FOUND, [0, 5], 6)
        for offset in range(6):
            said = caplog.text.count(f"queue 0 offset {offset}: its record is damaged")
            assert said == (1 if offset in (2, 3, 4) else 0)

    run_scenario(scenario)


def test_a_pull_of_nothing_but_damaged_records_says_so(run_scenario):
    async def scenario(harness):
        harness.open()
        await put(harness, RED, BLUE)
        await harness.stop()
        damage(harness, 0)
        harness.open()
        got = red(harness, 0)
        assert (got.status, got.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
        assert red(harness, 1).status is GetStatus.NO_MATCHED_MESSAGE

    run_scenario(scenario)


@pytest.mark.parametrize("is_old", [True, False])
def test_one_read_looks_for_damage_in_so_many_bytes_and_no_more(run_scenario, monkeypatch, is_old):
    """What was written since the start is in memory, and not looked at."""

    async def scenario(harness):
        monkeypatch.setattr(queue_reader, "_REJECTED_BYTES_MAX", 2_000)
        harness.open()
        await put(harness, *[BLUE] * 9, RED, length=700)
        if is_old:
            await harness.stop()
            harness.open()
        reads, offset = 0, 0
        while (got := red(harness, offset)).status is GetStatus.NO_MATCHED_MESSAGE:
            assert got.next_offset > offset
            reads, offset = reads + 1, got.next_offset
        assert numbers(got) == [9]
        assert reads == (3 if is_old else 0)

    run_scenario(scenario)


@pytest.mark.parametrize("wrong", [1 << 40, 100_000, 1])
def test_a_damaged_entry_between_others_costs_one_message_and_is_said(
    wrong, run_scenario, caplog, each_form
):
    """Records of two queues lie in turn, so that those of one are gathered by their entries."""

    async def scenario(harness):
        harness.open()
        for number in range(12):
            await harness.put(b"%d" % number, "T", number % 2)
        await harness.stop()
        harness.open()
        (path,) = [path for path in (harness.root / "consumequeue/T/0").iterdir() if path.is_file()]
        with path.open("r+b") as file:
            file.seek(3 * 20)
            file.write(wrong.to_bytes(8, "big", signed=True))
        got = harness.store.get("T", 0, 0, 32, 1 << 20, None)
        assert (got.status, numbers(got)) == (GetStatus.FOUND, [0, 1, 2, 4, 5])
        assert "queue 0 offset 3" in caplog.text

    run_scenario(scenario)
