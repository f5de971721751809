"""Queue files built anew from what is left of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]

FILES = {"commit_log_file_bytes": 4096, "consume_queue_file_bytes": 200}


def test_a_queue_whose_first_messages_have_left_the_log_begins_with_the_first_that_is_there(
    run_scenario: Run,
) -> None:
    """Its first file is whole and older than the log, the second one is built anew."""

    async def scenario(harness: StoreHarness) -> None:
        harness.open(**FILES)
        for number in range(20):
            await harness.put(b"%d " % number + bytes(500))
        await harness.stop()
        gone = harness.log_files()[:2]
        for path in gone:
            path.unlink()
        second = harness.root / "consumequeue/T/0" / f"{200:020d}"
        second.write_bytes(bytes(200))
        harness.open(**FILES)
        first = harness.store.min_offset("T", 0)
        assert 10 < first < 20
        assert harness.bodies()[0].startswith(b"%d " % first)
        assert len(harness.bodies()) == 20 - first

    run_scenario(scenario)
