"""What happens while a flush is under way: files deleted, senders that come later."""

import asyncio
import threading

import pytest

from cometmq.store.message_store import Draft, MessageStore, PutStatus
from cometmq.world.system import ThreadWorker
from store.conftest import HOST, small, tags_code


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

        class Held(ThreadWorker):
            def submit(self, job, done):
                def held():
                    gate.begun.set()
                    gate._open.wait(10)
                    job()

                super().submit(held, done)

        return Held(name)


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


def open_slowly(shop, gate, **changes):
    shop.settings = small(**changes)
    shop.store = MessageStore.open(
        shop.root,
        shop.settings,
        clock=shop.clock,
        files=shop.files,
        tags_code=tags_code,
        store_host=HOST,
        worker=gate.worker,
        ram=1 << 30,
    )
    return shop.store


async def begun(gate):
    while not gate.begun.is_set():
        await asyncio.sleep(0.001)


async def status_of(store):
    answer = asyncio.get_running_loop().create_future()
    store.settle(answer.set_result)
    return await asyncio.wait_for(answer, 10)


def test_a_topic_deleted_while_its_queues_are_flushed_holds_nobody_up(tell, gate, caplog):
    async def story(shop):
        store = open_slowly(shop, gate, flush_interval_consume_queue_ms=1)
        await shop.put(b"x", "T")
        await shop.put(b"y", "U")
        gate.shut()
        store._upkeep.vouch_soon()
        turn = asyncio.create_task(store._upkeep.write_queues())
        await begun(gate)  # the log is flushed first, the queues after it
        gate.open()
        while not store._queues._unflushed:
            await asyncio.sleep(0.001)
        gate.shut()
        await begun(gate)
        store.delete_topic("T")
        gate.open()
        await turn
        assert not store._upkeep.is_full
        assert shop.bodies("U") == [b"y"]
        assert (await shop.put(b"z", "T")).queue_offset == 0

    tell(story)
    assert caplog.text == ""


def test_a_file_of_the_log_may_go_while_it_is_flushed(tell, gate):
    async def story(shop):
        store = open_slowly(shop, gate, flush_disk_type="SYNC_FLUSH")
        gate.shut()
        asked = []
        for _ in range(8):  # two files and a bit
            store.put(Draft("T", 0, bytes(5000)))
            asked.append(asyncio.create_task(status_of(store)))
            await asyncio.sleep(0)
        await begun(gate)
        store._row.remove(store._row.first)
        gate.open()
        assert set(await asyncio.gather(*asked)) == {PutStatus.PUT_OK}
        assert (await shop.put(b"more")).status is PutStatus.PUT_OK

    tell(story)


def test_whoever_joins_a_flush_that_nobody_asked_for_hears_in_time(tell, gate):
    async def story(shop):
        store = open_slowly(shop, gate, flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=50)
        gate.shut()
        first = asyncio.create_task(shop.put(b"x"))
        await begun(gate)
        store.put(Draft("T", 0, b"nobody asks"))
        await asyncio.sleep(0.001)
        store.put(Draft("T", 0, b"somebody asks"))
        assert await status_of(store) is PutStatus.FLUSH_DISK_TIMEOUT
        gate.open()
        with pytest.raises(AssertionError):  # it was told of the delay, too
            await first

    tell(story)
