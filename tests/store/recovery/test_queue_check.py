"""Entries of a queue without a checksum are compared with the records that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq.store.queues.queue_checksums import NAME
from cometmq.wire.records.consume_queue_entry import ENTRY, SIZE
from store.inspected_store import edit

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]


@pytest.mark.parametrize(
    ("place_by", "size_by"),
    [(4, -4), (0, -1), (0, 1), (1, -1)],
    ids=["amid a record", "too short", "too long", "a byte later"],
)
def test_an_entry_that_names_no_whole_record_has_its_file_built_anew(
    run_scenario: Run, caplog: pytest.LogCaptureFixture, place_by: int, size_by: int
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        for number in range(5):
            await harness.put(b"%d" % number)
        await harness.stop()
        (harness.root / NAME).unlink()

        def change(raw: bytearray) -> None:
            place, size, code = ENTRY.unpack_from(raw, 4 * SIZE)
            ENTRY.pack_into(raw, 4 * SIZE, place + place_by, size + size_by, code)

        edit(harness.root / "consumequeue/T/0" / f"{0:020d}", change)
        harness.open()
        assert "did not agree with the log: built anew" in caplog.text
        assert harness.bodies() == [b"%d" % number for number in range(5)]

    run_scenario(scenario)


def test_what_a_crash_left_of_entries_behind_the_checkpoint_is_no_damage(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """They are written again from the log; a file is built anew only for what was durable."""

    async def scenario(harness: StoreHarness) -> None:
        store = harness.open()
        for number in range(10):
            await harness.put(b"%d" % number)
            if number == 4:
                await store._maintenance.checkpoint_queues()
        store._queues.write_all_pending()
        await harness.crash()

        def change(raw: bytearray) -> None:
            assert any(raw[9 * SIZE : 10 * SIZE])
            raw[7 * SIZE : 8 * SIZE] = bytes(SIZE)

        edit(harness.root / "consumequeue/T/0" / f"{0:020d}", change)
        harness.open()
        assert "built anew" not in caplog.text
        assert harness.bodies() == [b"%d" % number for number in range(10)]

    run_scenario(scenario)
