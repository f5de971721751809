"""A store that is fed with raw bytes of another's log only answers every read as that one does."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import StoreCorrupt, StoreError
from cometmq.store.message_store import GetStatus, MessageDraft, MessageStore, PutStatus
from cometmq.store.queues.record_dispatcher import GAP_MAX
from cometmq.testing.memory_store import STORE_ROOT, memory_store
from cometmq.testing.sim_files import SimClock, SimFiles, SimWorker
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from cometmq.store.get_result import GetResult

LOG_FILE = 8192
CHUNKS = (1, 7, 8, 100, 1_000, 4_096, 1 << 20)


class Node:
    """One store on a disk of its own, which outlives it."""

    def __init__(self, rng: Random, flush: str) -> None:
        self.rng, self.flush = rng, flush
        self.disk = SimFiles(rng, SimClock())
        self.workers: list[SimWorker] = []
        self.store = self.open()

    def open(self) -> MessageStore:
        self.store = memory_store(
            files=self.disk,
            worker=self._worker,
            flush_disk_type=self.flush,
            commit_log_file_bytes=LOG_FILE,
            consume_queue_file_bytes=320,
            max_hash_slot_num=500,
            max_index_num=60,
        )
        return self.store

    def _worker(self, _name: str) -> SimWorker:
        self.workers.append(SimWorker(self.rng))
        return self.workers[-1]

    async def crash(self, *, power_cut: bool) -> None:
        for worker in self.workers:
            worker.is_dead = True
        self.workers.clear()
        self.store._appender._end_batch = lambda: None  # type: ignore[method-assign]
        await asyncio.sleep(0)
        (self.disk.power_cut if power_cut else self.disk.kill)()
        self.open()

    def files(self, folder: str) -> dict[str, bytes]:
        root = STORE_ROOT / folder
        paths = [path for path in self.disk._names if root in path.parents]
        contents = {str(path): self.disk.read(path) for path in paths}
        return {path: content for path, content in contents.items() if content is not None}


async def put(store: MessageStore, rng: Random, number: int) -> None:
    topic, queue_id = rng.choice(("A", "B")), rng.randint(0, 1)
    raw = b"KEYS\x01k%d all\x02TAGS\x01%d\x02" % (number, number % 3)
    body = b"%d:" % number + b"x" * rng.choice((0, 5, 90, 700, 2_500))
    sys_flag = rng.choice((0, 0, 0, 4, 12))  # prepared ones and rollbacks stand in no queue
    store.put(MessageDraft(topic, queue_id, body, raw, sys_flag=sys_flag, born_ms=1))


async def durable(store: MessageStore) -> None:
    answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    store.on_durable(answer.set_result)
    assert await answer is PutStatus.PUT_OK


def feed(leader: MessageStore, follower: MessageStore, size: int) -> int:
    """Carry one run of bytes over; how many these were."""
    at = follower.raw_log.end_offset
    data = leader.read_raw(at, size)
    assert len(data) <= size
    if data:
        assert follower.append_raw(at, data) == at + len(data)
    return len(data)


def all_of(store: MessageStore, topic: str, queue_id: int) -> list[GetResult]:
    found, offset = [], store.min_offset(topic, queue_id)
    while (got := store.get(topic, queue_id, offset, 32, 1 << 20)).status is GetStatus.FOUND:
        found.append(got)
        offset = got.next_offset
    return found


async def answers(store: MessageStore, clock_ms: int) -> dict[str, object]:
    """What every read of the store says."""
    await store.lookup.catch_up()
    found: dict[str, object] = {"log": (store.min_phy_offset, store.max_phy_offset)}
    for topic, queue_id in sorted(store.queues()):
        key = f"{topic} {queue_id} "
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        entries = [store.entry(topic, queue_id, number) for number in range(low, high)]
        found[key + "range"] = low, high
        found[key + "got"] = all_of(store, topic, queue_id)
        found[key + "entries"] = entries
        found[key + "records"] = [store.record_at(entry[0]) for entry in entries if entry]
        found[key + "times"] = [store.store_time(topic, queue_id, n) for n in range(low, high)]
        found[key + "by time"] = [
            store.offset_by_time(topic, queue_id, clock_ms + ms, upper)
            for ms in range(-5, 200, 7)
            for upper in (False, True)
        ]
    for topic in "AB":
        for name in ("all", "k0", "k1", "k7", "none"):
            query = store.lookup.query(topic, name, 500, 0, 1 << 60)
            found[f"{topic} {name}"] = (await query).records
    return found


async def follow(seed: int, flush: str, *, crashes: bool) -> None:
    rng = Random(seed)
    leader, follower = Node(rng, flush), Node(rng, flush)
    start_ms, number = leader.disk.clock.ms, 0
    for _ in range(rng.randint(1, 8)):
        for _ in range(rng.randint(0, 9)):
            await put(leader.store, rng, number)
            number += 1
            leader.disk.clock.ms += rng.choice((0, 1, 20))
        await durable(leader.store)
        for _ in range(rng.randint(0, 30)):
            feed(leader.store, follower.store, rng.choice(CHUNKS))
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        if rng.random() < 0.3:
            await rng.choice((leader, follower)).store._maintenance.write_queues()
        if crashes and rng.random() < 0.5:
            await rng.choice((leader, follower)).crash(
                power_cut=flush == "SYNC_FLUSH" and rng.random() < 0.7
            )
    # A message in a queue is the last one: what follows it in the log and stands in none is indexed
    # with the next, or by a restart.
    await put_one(leader.store, b"last")
    await durable(leader.store)
    while feed(leader.store, follower.store, rng.choice(CHUNKS)):
        pass
    await durable(follower.store)
    assert follower.store.raw_log.end_offset == follower.store.max_phy_offset
    assert await answers(follower.store, start_ms) == await answers(leader.store, start_ms)
    await leader.store.stop()
    await follower.store.stop()
    for folder in ("commitlog", "consumequeue"):
        assert follower.files(folder) == leader.files(folder)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_a_copy_fed_with_runs_of_any_length_answers_every_read_alike(flush, seed):
    asyncio.run(follow(seed, flush, crashes=False))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_a_copy_goes_on_from_its_tail_after_kills_and_power_cuts_of_either_side(flush, seed):
    asyncio.run(follow(seed, flush, crashes=True))


def pair(flush: str = "ASYNC_FLUSH") -> tuple[Node, Node]:
    rng = Random(1)
    return Node(rng, flush), Node(rng, flush)


async def put_one(store: MessageStore, body: bytes = b"x", topic: str = "A") -> None:
    assert store.put(MessageDraft(topic, 0, body)).status is PutStatus.PUT_OK
    await durable(store)


def test_part_of_a_record_waits_in_memory_until_the_rest_of_it_comes():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        await put_one(leader)
        data = leader.read_raw(0, 1 << 20)
        assert follower.append_raw(0, data[:50]) == follower.raw_log.end_offset == 50
        await durable(follower)
        assert (follower.max_phy_offset, follower.max_offset("A", 0)) == (0, 0)
        assert follower.read_raw(0, 100) == b"", "it is not passed on either"
        follower.append_raw(50, data[50:])
        await durable(follower)
        assert follower.max_offset("A", 0) == 1
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_a_copy_that_takes_messages_of_its_own_forgets_the_part_of_a_record():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair("SYNC_FLUSH"))
        await put_one(leader)
        await put_one(leader, b"second")
        data = leader.read_raw(0, 1 << 20)
        follower.append_raw(0, data[:-3])
        await durable(follower)
        await put_one(follower, b"own")
        assert follower.raw_log.end_offset == follower.max_phy_offset
        assert follower.max_offset("A", 0) == 2
        assert b"own" in follower.get("A", 0, 1, 1, 1 << 20).body
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_raw_bytes_are_refused_in_a_loop_iteration_that_puts():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        await put_one(leader)
        follower.put(MessageDraft("A", 0, b"own"))
        with pytest.raises(StoreError, match="append raw bytes later"):
            follower.append_raw(0, leader.read_raw(0, 1 << 20))
        await durable(follower)
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_arrivals_are_reported_for_raw_bytes_as_for_puts():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        arrivals: list[tuple[str, int, int, int]] = []
        follower.on_arrival = lambda *arrival: arrivals.append(arrival)
        await put_one(leader)
        feed(leader, follower, 1 << 20)
        await durable(follower)
        assert arrivals == [("A", 0, 1, 0)]
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_bytes_that_do_not_continue_the_log_are_refused():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        await put_one(leader)
        data = leader.read_raw(0, 1 << 20)
        with pytest.raises(StoreError, match="do not continue"):
            follower.append_raw(8, data)
        follower.append_raw(0, data)
        with pytest.raises(StoreError, match="do not continue"):
            follower.append_raw(0, data)
        with pytest.raises(StoreError, match="do not continue"):
            follower.append_raw(LOG_FILE, data)
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("broken_at", [4, 30, -30])
def test_bytes_that_are_no_whole_records_are_refused_and_nothing_is_taken(broken_at):
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        await put_one(leader)
        data = bytearray(leader.read_raw(0, 1 << 20))
        good = bytes(data)
        data[broken_at] ^= 0xFF
        with pytest.raises(StoreCorrupt):
            follower.append_raw(0, bytes(data))
        assert (follower.max_phy_offset, follower.queues()) == (0, [])
        follower.append_raw(0, good)
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_a_record_with_a_negative_queue_offset_is_refused():
    async def scenario() -> None:
        follower = pair()[1].store
        host = bytes((127, 0, 0, 1, 0, 0, 42, 159))
        raw = log_record.encode("A", 0, 0, -1, 0, 0, 1, host, 1, host, 0, 0, b"x", b"")
        with pytest.raises(StoreCorrupt):
            follower.append_raw(0, raw)
        assert (follower.max_phy_offset, follower.queues()) == (0, [])
        await follower.stop()

    asyncio.run(scenario())


def test_a_number_that_is_too_far_ahead_is_refused_before_anything_is_written():
    def record(phy_offset: int, queue_offset: int) -> bytes:
        host = bytes((127, 0, 0, 1, 0, 0, 42, 159))
        return log_record.encode(
            *("A", 0, 0, queue_offset, phy_offset, 0, 1, host, 1, host, 0, 0, b"x", b"")
        )

    async def scenario() -> None:
        follower = pair()[1].store
        size = len(record(0, 0))
        far = GAP_MAX + 2
        with pytest.raises(StoreCorrupt, match=f"number {far} in queue 0 of A, where 1 is next"):
            follower.append_raw(0, record(0, 0) + record(size, far))
        assert (follower.max_phy_offset, follower.queues()) == (0, [])
        follower.append_raw(0, record(0, 0))
        with pytest.raises(StoreCorrupt, match=f"number {far}"):
            follower.append_raw(size, record(size, far))
        assert (follower.max_phy_offset, follower.raw_log.end_offset) == (size, size)
        follower.append_raw(size, record(size, 1))
        await durable(follower)
        assert follower.max_offset("A", 0) == 2
        await follower.stop()

    asyncio.run(scenario())


def test_an_empty_copy_begins_where_it_did_after_bytes_that_were_refused():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        await put_one(leader)
        with pytest.raises(StoreCorrupt):
            follower.append_raw(3 * LOG_FILE, b"not a record")
        assert follower.raw_log.end_offset == follower.max_phy_offset == 0
        follower.append_raw(0, leader.read_raw(0, 1 << 20))
        await durable(follower)
        assert all_of(follower, "A", 0) == all_of(leader, "A", 0)
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_a_copy_may_begin_with_any_file_of_the_log():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair())
        for number in range(40):
            await put_one(leader, b"%d" % number + bytes(700))
        last_file = leader.max_phy_offset // LOG_FILE * LOG_FILE
        assert last_file > 0
        follower.append_raw(last_file, leader.read_raw(last_file, 1 << 20))
        await durable(follower)
        assert follower.min_phy_offset == last_file
        low, high = follower.min_offset("A", 0), follower.max_offset("A", 0)
        assert 0 < low < high == 40
        theirs, ours = (store.get("A", 0, low, 32, 1 << 20) for store in (leader, follower))
        assert theirs.body == ours.body
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_a_topic_that_was_deleted_and_made_again_begins_anew_in_the_copy():
    async def scenario() -> None:
        leader, follower = (node.store for node in pair("SYNC_FLUSH"))
        for body in (b"old 0", b"old 1"):
            await put_one(leader, body)
        feed(leader, follower, 1 << 20)
        leader.delete_topic("A")
        for number in range(4):
            await put_one(leader, b"new %d" % number)
        feed(leader, follower, 1 << 20)
        await durable(follower)
        assert follower.max_offset("A", 0) == 4
        found = log_record.iterate(follower.get("A", 0, 0, 32, 1 << 20).body)
        assert [record.body for record in found] == [b"new %d" % number for number in range(4)]
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_what_a_full_disk_refuses_is_taken_later_at_the_same_place():
    async def scenario() -> None:
        nodes = pair()
        leader, follower = (node.store for node in nodes)
        await put_one(leader, bytes(3_000))
        data = leader.read_raw(0, 1 << 20)
        nodes[1].disk.room = 1_000
        with pytest.raises(OSError, match="No space"):
            follower.append_raw(0, data)
        assert (follower.max_phy_offset, follower.max_offset("A", 0)) == (0, 0)
        nodes[1].disk.room = None
        follower.append_raw(0, data)
        await durable(follower)
        assert follower.max_offset("A", 0) == 1
        await leader.stop()
        await follower.stop()

    asyncio.run(scenario())


def test_with_sync_flush_only_flushed_bytes_are_given_away():
    async def scenario() -> None:
        leader = pair("SYNC_FLUSH")[0].store
        leader.put(MessageDraft("A", 0, b"x"))
        await asyncio.sleep(0)
        assert leader.max_phy_offset > 0
        assert leader.read_raw(0, 1 << 20) == b""
        await durable(leader)
        assert len(leader.read_raw(0, 1 << 20)) == leader.max_phy_offset
        with pytest.raises(StoreError, match="is not in the log"):
            leader.read_raw(leader.max_phy_offset + 1, 1)
        await leader.stop()

    asyncio.run(scenario())
