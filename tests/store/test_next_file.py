"""The log's next file is made beside the loop, and what comes of it when things end otherwise."""

import asyncio
import errno
import logging
import threading

from cometmq.runtime.system import SystemFiles
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.recovery.inspection import Inspection

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


async def begin(shop, files=None):
    """A store whose first file is more than half full."""
    shop.files = files or Watched()
    store = shop.open(commit_log_file_bytes=FILE)
    await store.start()
    for _ in range(FULL):
        await shop.put(BODY)
    assert FILE // 2 < store.max_phy_offset < FILE
    return store


async def until(is_so):
    while not is_so():
        await asyncio.sleep(0.01)


async def roll(shop):
    for _ in range(FULL):
        await shop.put(BODY)
    assert shop.store.max_phy_offset > FILE


def test_the_loop_makes_no_file_but_the_first(tell):
    async def story(shop):
        store = await begin(shop)
        await until(lambda: len(shop.log_files()) == 2)
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        assert shop.log_files()[1].stat().st_size == FILE
        assert not any(shop.log_files()[1].read_bytes())
        await roll(shop)
        assert shop.files.opened[:2] == [(0, "loop"), (FILE, "worker")]
        assert (FILE, "loop") not in shop.files.opened
        assert shop.bodies() == [BODY] * 2 * FULL

    tell(story)


def test_an_empty_file_ahead_is_no_part_of_the_store(tell):
    async def story(shop):
        store = await begin(shop)
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        end = store.max_phy_offset
        await store.clean()
        assert len(shop.log_files()) == 2
        await shop.crash()
        with Inspection(shop.root, SystemFiles(), IndexFileLayout(1500, 60)) as inspection:
            report = inspection.verify()
        assert (report.records, report.end, report.damage) == (FULL, end, [])
        store = shop.open()
        assert store.max_phy_offset == end
        assert shop.bodies() == [BODY] * FULL
        assert len(shop.log_files()) == 1
        await store.start()
        await until(lambda: store._parts.mapped_files.preallocated is not None)
        await shop.stop()
        assert len(shop.log_files()) == 1, "a store that is stopped ends with its log"

    tell(story)


def test_a_file_that_is_not_ready_in_time_is_made_by_the_log_itself(tell):
    async def story(shop):
        shop.files = Watched()
        store = shop.open(commit_log_file_bytes=FILE)
        shop.files.go_on.clear()
        await store.start()
        for _ in range(FULL):
            await shop.put(BODY)
        await until(lambda: store._parts.mapped_files.preallocated_base == FILE)
        await roll(shop)
        shop.files.go_on.set()
        await until(lambda: (FILE, "worker") in shop.files.opened)
        await roll(shop)
        assert shop.bodies() == [BODY] * 3 * FULL
        await shop.crash()
        shop.open()
        assert shop.bodies() == [BODY] * 3 * FULL

    tell(story)


def test_a_disk_that_makes_no_file_ahead_holds_nobody_up(tell, caplog):
    async def story(shop):
        files = Watched()
        files.is_broken = True
        store = await begin(shop, files)
        with caplog.at_level(logging.INFO):
            await until(lambda: "could not be made ahead" in caplog.text)
        assert store._parts.mapped_files.preallocated is None
        await roll(shop)
        assert (FILE, "loop") in files.opened
        assert shop.bodies() == [BODY] * 2 * FULL

    tell(story)
