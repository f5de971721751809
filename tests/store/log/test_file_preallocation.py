"""The log's next file is made on a worker thread, and deleted or closed when it is not needed."""

import asyncio
import errno
import logging
import threading

from cometmq.runtime.system_clock_and_files import SystemFiles
from store.inspected_store import verify

FILE, FULL = 16384, 30
BODY = b"x" * 400  # some 500 bytes a record: `FULL` of them are more than half a file


class Watched(SystemFiles):
    """Notes which log files were opened, and by whom; may refuse to the worker."""

    def __init__(self):
        self.opened, self.go_on, self.is_broken = [], threading.Event(), False
        self.go_on.set()

    def open(self, path, size, *, mapped=False):
        if path.parent.name == "commitlog":
            is_loop = threading.current_thread() is threading.main_thread()
            if not is_loop:
                self.go_on.wait(10)
                if self.is_broken:
                    raise OSError(errno.EIO, "Input/output error")
            self.opened.append((int(path.name), "loop" if is_loop else "worker"))
        return super().open(path, size, mapped=mapped)


async def begin(harness, files=None):
    """A store whose first file is more than half full."""
    harness.files = files or Watched()
    store = harness.open(commit_log_file_bytes=FILE)
    await store.start()
    for _ in range(FULL):
        await harness.put(BODY)
    assert FILE // 2 < store.max_phy_offset < FILE
    return store


async def until(is_so):
    while not is_so():
        await asyncio.sleep(0.01)


async def roll(harness):
    for _ in range(FULL):
        await harness.put(BODY)
    assert harness.store.max_phy_offset > FILE


def test_the_loop_makes_no_file_but_the_first(run_scenario):
    async def scenario(harness):
        store = await begin(harness)
        await until(lambda: len(harness.log_files()) == 2)
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        assert harness.log_files()[1].stat().st_size == FILE
        assert not any(harness.log_files()[1].read_bytes())
        await roll(harness)
        assert harness.files.opened[:2] == [(0, "loop"), (FILE, "worker")]
        assert (FILE, "loop") not in harness.files.opened
        assert harness.bodies() == [BODY] * 2 * FULL

    run_scenario(scenario)


def test_an_empty_file_ahead_is_no_part_of_the_store(run_scenario):
    async def scenario(harness):
        store = await begin(harness)
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        end = store.max_phy_offset
        await store.clean()
        assert len(harness.log_files()) == 2
        await harness.crash()
        report = verify(harness)
        assert (report.records, report.end, report.damage) == (FULL, end, [])
        store = harness.open()
        assert store.max_phy_offset == end
        assert harness.bodies() == [BODY] * FULL
        assert len(harness.log_files()) == 1
        await store.start()
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        await harness.stop()
        assert len(harness.log_files()) == 1, "a store that is stopped ends with its log"

    run_scenario(scenario)


def test_a_file_that_is_not_ready_in_time_is_made_by_the_log_itself(run_scenario):
    async def scenario(harness):
        harness.files = Watched()
        store = harness.open(commit_log_file_bytes=FILE)
        harness.files.go_on.clear()
        await store.start()
        for _ in range(FULL):
            await harness.put(BODY)
        await until(lambda: store._parts.mapped_files.preallocated_base == FILE)
        await roll(harness)
        harness.files.go_on.set()
        await until(lambda: (FILE, "worker") in harness.files.opened)
        await roll(harness)
        assert harness.bodies() == [BODY] * 3 * FULL
        await harness.crash()
        harness.open()
        assert harness.bodies() == [BODY] * 3 * FULL

    run_scenario(scenario)


def test_a_disk_that_makes_no_file_ahead_holds_nobody_up(run_scenario, caplog):
    async def scenario(harness):
        files = Watched()
        files.is_broken = True
        store = await begin(harness, files)
        with caplog.at_level(logging.INFO):
            await until(lambda: "could not be made ahead" in caplog.text)
        assert store._parts.mapped_files.preallocated is None
        await roll(harness)
        assert (FILE, "loop") in files.opened
        assert harness.bodies() == [BODY] * 2 * FULL

    run_scenario(scenario)
