"""What happens while a flush is under way: files deleted, senders that come later."""

import asyncio
import errno
import threading

import pytest

from cometmq.runtime.system_clock_and_files import SystemFiles, ThreadWorker
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles, pin_segments
from cometmq.store.message_store import MessageDraft, PutStatus


class Gate:
    """Makes workers whose jobs wait until the gate is open."""

    def __init__(self):
        self._open = threading.Event()
        self._open.set()
        self.begun = threading.Event()

    def shut(self):
        self.begun.clear()
        self._open.clear()

    def open(self):
        self._open.set()

    def worker(self, name):
        gate = self

        class HeldLock(ThreadWorker):
            def submit(self, job, done):
                def held():
                    gate.begun.set()
                    gate._open.wait(10)
                    job()

                super().submit(held, done)

        return HeldLock(name)


@pytest.fixture
def gate(harness):
    made = Gate()
    harness.worker = made.worker
    yield made
    made.open()


async def begun(gate):
    while not gate.begun.is_set():
        await asyncio.sleep(0.001)


async def status_of(store):
    answer = asyncio.get_running_loop().create_future()
    store.on_durable(answer.set_result)
    return await asyncio.wait_for(answer, 10)


def test_a_topic_deleted_while_its_queues_are_flushed_holds_nobody_up(run_scenario, gate, caplog):
    async def scenario(harness):
        store = harness.open(flush_interval_consume_queue_ms=1)
        await harness.put(b"x", "T")
        await harness.put(b"y", "U")
        gate.shut()
        store._maintenance.checkpoint_soon()
        job = asyncio.create_task(store._maintenance.write_queues())
        await begun(gate)  # the log is flushed first, the queues after it
        gate.open()
        while not store._queues._unflushed:
            await asyncio.sleep(0.001)
        gate.shut()
        await begun(gate)
        store.delete_topic("T")
        gate.open()
        await job
        assert not store._maintenance.is_queue_write_failing
        assert harness.bodies("U") == [b"y"]
        assert (await harness.put(b"z", "T")).queue_offset == 0

    run_scenario(scenario)
    assert caplog.text == ""


class Slow(SystemFiles):
    """Holds up the first sync of one directory's names until it may go on."""

    def __init__(self, directory):
        self._directory = directory
        self.reached, self.go_on = threading.Event(), threading.Event()

    def sync_dir(self, directory):
        if directory == self._directory and not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(10)
        super().sync_dir(directory)


def test_a_topic_deleted_while_its_directories_are_made_durable_holds_nobody_up(
    run_scenario, caplog
):
    async def scenario(harness):
        harness.files = slow = Slow(harness.root / "consumequeue" / "T" / "0")
        store = harness.open()
        await harness.put(b"x", "T")
        job = asyncio.create_task(store._maintenance.write_queues())
        while not slow.reached.is_set():
            await asyncio.sleep(0.001)
        store.delete_topic("T")
        slow.go_on.set()
        await job
        assert not store._maintenance.is_queue_write_failing
        assert (await harness.put(b"y", "U")).status is PutStatus.PUT_OK

    run_scenario(scenario)
    assert caplog.text == ""


class Exhausted(SystemFiles):
    """May be out of descriptors."""

    is_exhausted = False

    def open(self, path, size, *, mapped=False):
        if self.is_exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path, size, mapped=mapped)


def test_a_flush_that_cannot_open_all_its_files_leaves_none_pinned(tmp_path):
    files, opened = Exhausted(), OpenFiles(8)
    mapped_files = MappedFileQueue(files, tmp_path, 400, opened)
    segments = [mapped_files.segment(0), mapped_files.segment(400)]
    opened.remove(segments[1])
    files.is_exhausted = True
    with pytest.raises(OSError, match="Too many open files"):
        pin_segments(segments)
    assert [segment.pins for segment in segments] == [0, 0]
    mapped_files.close()
    assert segments[0].file is None


def test_a_flush_answers_its_senders_although_the_next_one_cannot_begin(
    run_scenario, harness, gate
):
    async def scenario(harness):
        harness.files = Exhausted()
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        gate.shut()
        first = asyncio.create_task(harness.put(b"x"))
        await begun(gate)
        store.put(MessageDraft("T", 0, bytes(15_000)))
        store.put(MessageDraft("T", 0, bytes(15_000)))  # begins another file
        second = asyncio.create_task(status_of(store))
        while len(store._parts.mapped_files.bases) < 2 or store._parts.flusher._next is None:
            await asyncio.sleep(0.001)
        store._parts.mapped_files.open_files.remove(
            store._parts.mapped_files.segments[store._parts.mapped_files.bases[-1]]
        )
        harness.files.is_exhausted = True
        gate.open()
        await first  # PUT_OK: it is on the disk
        assert await second is PutStatus.SERVICE_NOT_AVAILABLE
        harness.files.is_exhausted = False
        assert harness.bodies() == [b"x"]

    run_scenario(scenario)


def test_a_file_of_the_log_may_go_while_it_is_flushed(run_scenario, gate):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        gate.shut()
        asked = []
        for _ in range(8):  # two files and a bit
            store.put(MessageDraft("T", 0, bytes(5000)))
            asked.append(asyncio.create_task(status_of(store)))
            await asyncio.sleep(0)
        await begun(gate)
        store._parts.mapped_files.remove(store._parts.mapped_files.first)
        gate.open()
        assert set(await asyncio.gather(*asked)) == {PutStatus.PUT_OK}
        assert (await harness.put(b"more")).status is PutStatus.PUT_OK

    run_scenario(scenario)


def test_a_sender_that_joins_a_background_flush_is_answered_in_time(run_scenario, gate):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=50)
        gate.shut()
        first = asyncio.create_task(harness.put(b"x"))
        await begun(gate)
        store.put(MessageDraft("T", 0, b"nobody asks"))
        await asyncio.sleep(0.001)
        store.put(MessageDraft("T", 0, b"somebody asks"))
        assert await status_of(store) is PutStatus.FLUSH_DISK_TIMEOUT
        gate.open()
        with pytest.raises(AssertionError):  # it was reported as late, too
            await first

    run_scenario(scenario)


def test_durable_puts_take_as_long_as_their_flush(run_scenario, gate):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        gate.shut()
        store.put(MessageDraft("T", 0, b"x"))
        asyncio.get_running_loop().call_later(0.06, gate.open)
        assert await status_of(store) is PutStatus.PUT_OK
        classes = store.put_times.classes(asyncio.get_running_loop().time())
        assert (sum(classes[:3]), sum(classes[3:])) == (0, 1), "50 ms or more"

    run_scenario(scenario)
