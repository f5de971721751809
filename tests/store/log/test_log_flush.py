"""Which messages share a flush, and what a flush finds on the disk."""

import asyncio

import pytest

from cometmq.runtime.system_clock_and_files import ThreadWorker
from cometmq.store.log.commit_log import ZEROS_AHEAD_BYTES
from cometmq.store.log.log_flush import JOINED_ITERATIONS
from cometmq.store.message_store import MessageDraft, PutStatus

FILE_BYTES = 4 * ZEROS_AHEAD_BYTES


@pytest.fixture
def flushes(harness):
    """What `log.written` was when each flush of the log was given to its worker."""
    given = []

    def worker(name):
        class Counted(ThreadWorker):
            def submit(self, job, done):
                if name == "store-flush":
                    given.append(harness.store._log.written)
                super().submit(job, done)

        return Counted(name)

    harness.worker = worker
    return given


def put(store, answers):
    store.put(MessageDraft("T", 0, b"x", b"", born_ms=1))
    answer = asyncio.get_running_loop().create_future()
    store.on_durable(answer.set_result)
    answers.append(answer)


def test_messages_of_the_iterations_before_a_flush_begins_share_it(run_scenario, flushes):
    async def scenario(harness):
        store, answers = harness.open(flush_disk_type="SYNC_FLUSH"), []
        for _ in range(3):
            put(store, answers)
            await asyncio.sleep(0)
        assert set(await asyncio.gather(*answers)) == {PutStatus.PUT_OK}
        assert flushes == [store._log.written]

    run_scenario(scenario)


def test_a_flush_begins_although_every_iteration_brings_messages(run_scenario, flushes):
    async def scenario(harness):
        store, answers = harness.open(flush_disk_type="SYNC_FLUSH"), []
        while not flushes:
            put(store, answers)
            await asyncio.sleep(0)
        assert len(answers) <= JOINED_ITERATIONS + 3
        assert set(await asyncio.gather(*answers)) == {PutStatus.PUT_OK}

    run_scenario(scenario)


def blocks_bytes(harness):
    return harness.log_files()[0].stat().st_blocks * 512


@pytest.mark.parametrize(
    ("flush", "body", "ahead"),
    [
        ("SYNC_FLUSH", 100, ZEROS_AHEAD_BYTES),
        ("SYNC_FLUSH", 100_000, 0),
        ("ASYNC_FLUSH", 100, 0),
    ],
    ids=["small", "large", "async"],
)
def test_small_writes_that_are_flushed_take_blocks_ahead(run_scenario, flush, body, ahead):
    async def scenario(harness):
        store = harness.open(flush_disk_type=flush, commit_log_file_bytes=FILE_BYTES)
        for _ in range(3):
            await harness.put(b"x" * body)
        store._log.segments(0, 1)[0].file.sync()  # where blocks are taken late, they are now
        beyond = blocks_bytes(harness) - store._log.written
        assert ahead - 4096 <= beyond <= ahead + 65_536
        assert harness.bodies() == [b"x" * body] * 3

    run_scenario(scenario)


def test_zeros_end_with_their_file_and_begin_anew_in_the_next(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH", commit_log_file_bytes=FILE_BYTES)
        bodies = [bytes([number]) * 30_000 for number in range(40)]
        for body in bodies:
            await harness.put(body)
        assert len(harness.log_files()) == 2
        assert harness.bodies() == bodies
        await harness.crash()
        harness.open()
        assert harness.bodies() == bodies
        assert store._log.written == harness.store._log.written

    run_scenario(scenario)
