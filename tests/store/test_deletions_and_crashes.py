"""Retention, deleted topics and a disk in trouble, between puts, kills and power cuts.

What was answered stays unless its topic was deleted or its file went by age; what was never put
does not appear; no start is refused.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter, defaultdict
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cometmq.store.message_store import GetStatus, MessageDraft, MessageStore, PutResult, PutStatus
from cometmq.testing.memory_store import memory_store
from cometmq.testing.sim_files import SimClock, SimFiles, SimWorker
from cometmq.wire.records import log_record as stored
from oracle_runs import record_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Queue = tuple[str, int]
DAYS_MS = 24 * 3_600_000
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
SIZES = {"commit_log_file_bytes": 4096, "consume_queue_file_bytes": 160, "open_files_max": 8}
SIZES |= {"max_hash_slot_num": 300, "max_index_num": 30}


class Answered(NamedTuple):
    """A message whose sender has its answer."""

    body: bytes
    phy_offset: int


class DeletionScenario:
    """The scenario of one seed."""

    def __init__(self, seed: int, flush: str) -> None:
        self.rng = Random(seed)
        self.flush = flush
        self.disk = SimFiles(self.rng, SimClock(hour=4))  # the hour of retention
        self.workers: list[SimWorker] = []
        self.answered: dict[Queue, dict[int, Answered]] = defaultdict(dict)
        self.tried: dict[tuple[Queue, int], set[bytes]] = defaultdict(set)
        self.deletions: Counter[str] = Counter()
        self.log_first = 0
        """Where the log began at most: what lies before it went by its age."""
        self.counts: Counter[str] = Counter()
        self.number = 0
        self.store = self.open()

    def open(self) -> MessageStore:
        batch = self.rng.choice((1, 2, 10))
        store = self.store = memory_store(
            files=self.disk,
            worker=self.worker,
            flush_disk_type=self.flush,
            delete_file_batch_max=batch,
            **SIZES,
        )
        for topic in store.deletion.unfinished():
            store.delete_topic(topic)
            self.forget(topic)
        return store

    def worker(self, _name: str) -> SimWorker:
        self.workers.append(SimWorker(self.rng))
        return self.workers[-1]

    def put(self) -> None:
        """Put some messages of one queue, in one of the ways that the broker has for it."""
        queue, life = (self.rng.choice("ABC"), self.rng.randint(0, 1)), self.disk.life
        bodies, raws = [], []
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            self.number += 1
            bodies.append(b"%d:" % self.number + b"x" * self.rng.choice((0, 50, 300, 900)))
            raws.append(b"KEYS\x01k%d\x02TAGS\x01a\x02" % self.number)
        placed = {}
        for body, (phy_offset, queue_offset) in zip(
            bodies, self.place(queue, bodies, raws), strict=False
        ):
            self.tried[queue, queue_offset].add(body)
            placed[queue_offset] = Answered(body, phy_offset)
        deletions = self.deletions[queue[0]]

        def answer(status: PutStatus) -> None:
            is_same = life == self.disk.life and deletions == self.deletions[queue[0]]
            if status is PutStatus.PUT_OK and is_same:
                self.answered[queue] |= placed

        if placed:
            self.store.on_durable(answer)

    def place(
        self, queue: Queue, bodies: list[bytes], raws: list[bytes]
    ) -> Iterable[tuple[int, int]]:
        """Where the messages were put that were put: places in the log and in the queue."""
        how = self.rng.choice(("one by one", "together", "template", "run", "column by column"))
        self.counts[how] += 1
        drafts = [MessageDraft(*queue, *pair, born_ms=1) for pair in zip(bodies, raws, strict=True)]
        if how in ("one by one", "together"):
            put_all = self.store.put_batch if how == "together" else self.put_each
            placed = put_all(drafts)
            return [(p.phy_offset, p.queue_offset) for p in placed if p.status is PutStatus.PUT_OK]
        template = self.store.record_template(
            queue[0], 2, flag=0, sys_flag=0, born_host=HOST, reconsume_times=0
        )
        codes = [self.store.tags_code(queue[0], raw, 0) for raw in raws]
        ids, born = [queue[1]] * len(bodies), [1] * len(bodies)
        if how == "template":
            messages = zip(ids, born, bodies, raws, codes, strict=True)
            places = [place for each in messages if (place := template.put(*each)) is not None]
            return [place[:2] for place in places]
        if how == "run":
            found = template.put_run(ids, born, bodies, raws, codes)
            return zip(found.phy_offsets, found.queue_offsets, strict=True)
        batch = template.put_batch(queue[1], 1, bodies, raws, codes)
        return zip(batch.phy_offsets, batch.queue_offsets, strict=True) if batch else ()

    def put_each(self, drafts: list[MessageDraft]) -> list[PutResult]:
        return [self.store.put(draft) for draft in drafts]

    async def act(self) -> None:
        work = self.store._maintenance
        for _ in range(self.rng.randint(0, 4)):
            self.put()
        if self.rng.random() < 0.1:
            self.disk.room = self.rng.choice((0, 100, 1000))
            await asyncio.sleep(0)
            self.disk.room = None
        for _ in range(self.rng.randint(0, 3)):
            await asyncio.sleep(0)
        self.disk.clock.ms += self.rng.choice((0, 1, 400, 20_000, 4 * DAYS_MS))
        kind = self.rng.choice(("flush", "queues", "queues", "clean", "clean", "index", "delete"))
        if kind == "flush":
            work.flush_if_due()
            work.preallocator.preallocate_if_due()
        elif kind == "queues":
            await self.begin(work.write_queues())
        elif kind == "clean":
            with self.trouble():
                await self.begin(work.clean())
        elif kind == "index":
            await self.store.lookup.follow_log()
        else:
            await self.delete(self.rng.choice("ABC"))
        self.log_first = max(self.log_first, self.store.min_phy_offset)
        self.counts[kind] += 1

    async def begin(self, work: object) -> None:
        """Do work of the background, now and then not to its end."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        if self.rng.random() < 0.1:
            for _ in range(self.rng.randint(0, 5)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """A disk that fails its syncs, or is full, now and then."""
        luck = self.rng.random()
        self.disk.sync_error = OSError(errno.EIO, "bad") if luck < 0.3 else None
        self.disk.room = self.rng.choice((0, 100, 1000)) if luck > 0.9 else None
        yield
        self.disk.sync_error = self.disk.room = None

    async def delete(self, topic: str) -> None:
        """Delete a topic as the broker does."""
        deletion = self.store.deletion
        with self.trouble():
            try:
                await deletion.begin({topic})
            except OSError:
                return
        if self.rng.random() < 0.3:
            await deletion.take_back({topic})
            return
        self.deletions[topic] += 1
        await deletion.end({topic})
        self.forget(topic)

    def forget(self, topic: str) -> None:
        for queue in [queue for queue in self.answered if queue[0] == topic]:
            del self.answered[queue]

    async def end(self) -> str:
        how = self.rng.choice(("power cut", "power cut", "kill", "stop", "stop, power cut"))
        if how.startswith("stop"):
            await self.store.stop()
        for worker in self.workers:
            worker.is_dead = True
        self.workers.clear()
        self.store._appender._end_batch = lambda: None  # type: ignore[method-assign]
        await asyncio.sleep(0)
        (self.disk.power_cut if how.endswith("cut") else self.disk.kill)()
        self.counts[how] += 1
        return how

    async def check(self) -> None:
        first = max(self.store.min_phy_offset, self.log_first)
        for queue in {*self.answered, *self.store.queues()}:
            found = self.read(queue)
            for offset, (body, phy_offset) in self.answered[queue].items():
                assert phy_offset < first or found.get(offset) == body, (queue, offset, body[:9])
            for offset, body in found.items():
                assert body in self.tried[queue, offset], f"{queue} {offset} was invented"
            places = {offset: self.store.entry(*queue, offset) for offset in found}
            self.answered[queue] = {
                offset: Answered(body, entry[0])
                for offset, body in found.items()
                if (entry := places[offset]) is not None and entry[0] >= first
            }
            self.counts["messages_compared"] += len(found)
            for offset in sorted(self.answered[queue])[-2:]:
                await self.check_lookup(queue[0], self.answered[queue][offset].body)

    def read(self, queue: Queue) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset, end = self.store.min_offset(*queue), self.store.max_offset(*queue)
        while offset < end:
            got = self.store.get(*queue, offset, 32, 1 << 20)
            assert got.status is GetStatus.FOUND, (queue, offset, got.status)
            found |= {record.queue_offset: record.body for record in stored.iterate(got.body)}
            offset = got.next_offset
        return found

    async def check_lookup(self, topic: str, body: bytes) -> None:
        key = f"k{int(body.partition(b':')[0])}"
        records = (await self.store.lookup.query(topic, key, 9, 0, 1 << 60)).records
        assert body in [stored.decode(raw).body for raw in records], (topic, key)


async def run_seed(seed: int, flush: str) -> Counter[str]:
    scenario = DeletionScenario(seed, flush)
    for _ in range(scenario.rng.randint(1, 4)):
        for _ in range(scenario.rng.randint(1, 20)):
            await scenario.act()
        how = await scenario.end()
        if flush == "ASYNC_FLUSH" and how == "power cut":
            scenario.answered.clear()
        scenario.open()
        await scenario.check()
    await scenario.store.stop()
    return scenario.counts


def run_seeds(seeds: range, flush: str, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Run many seeds and count what was done."""
    caplog.set_level(logging.ERROR, "cometmq.store")
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts.update(asyncio.run(run_seed(seed, flush)))
        except Exception as failure:
            raise AssertionError(f"seed {seed}, {flush}: {failure}") from failure
        failed = [record for record in caplog.records if record.name == "asyncio"]
        assert not failed, f"seed {seed}, {flush}: {failed[0].getMessage()}"
        caplog.clear()
    return counts


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_deletion_and_no_trouble_of_the_disk_costs_other_messages(
    flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_seeds(range(40), flush, caplog)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_many_deletions_cost_no_other_messages(
    flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    counts = run_seeds(range(1_000, 3_000), flush, caplog)
    replay = "pytest -m slow tests/store/test_deletions_and_crashes.py"
    record_run("deletions", flush, replay=replay, **counts)
