"""Crash scenarios on the simulated disk: puts, then a stop, kill or power cut, then every check."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from random import Random

from cometmq.errors import StoreCorrupt
from cometmq.settings.store import StoreSettings
from cometmq.store.message_store import GetStatus, MessageDraft, MessageStore, PutStatus
from cometmq.testing.sim_files import SimClock, SimFiles, SimWorker
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

ROOT = Path("/store")
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
Queue = tuple[str, int]


class LossError(AssertionError):
    """Something that was acknowledged is gone, or something was invented."""


def small(flush: str = "SYNC_FLUSH", **more: object) -> StoreSettings:
    given = {"commit_log_file_bytes": 8192, "consume_queue_file_bytes": 320, "open_files_max": 8}
    given |= {"max_hash_slot_num": 1500, "max_index_num": 40, "read_threads": 1}
    return StoreSettings(flush_disk_type=flush, **(given | more))


class CrashScenario:
    """The scenario of one seed. `acked` and `tried` outlive every crash; the store does not."""

    def __init__(self, seed: int, flush: str = "SYNC_FLUSH") -> None:
        self.rng = Random(seed)
        self.clock = SimClock()
        self.files = SimFiles(self.rng, self.clock)
        self.flush = flush
        self.acked: dict[Queue, dict[int, bytes]] = {}
        self.tried: dict[Queue, dict[int, set[bytes]]] = {}
        self.keyed: set[bytes] = set()
        self.workers: list[SimWorker] = []
        self.counts: Counter[str] = Counter()
        """How often each thing was done, and how many messages were compared."""
        self.store = self.open()
        self._number = 0

    def open(self) -> MessageStore:
        self.store = MessageStore.open(
            ROOT,
            small(self.flush, append_crc=self.rng.random() < 0.8),
            clock=self.clock,
            files=self.files,
            tags_code=lambda topic, raw, ms: sum(properties.find(raw, b"TAGS") or b""),
            store_host=HOST,
            worker=self._worker,
            ram=1 << 30,
        )
        return self.store

    def _worker(self, name: str) -> SimWorker:
        worker = SimWorker(self.rng)
        self.workers.append(worker)
        return worker

    def put(self) -> None:
        rng, queue = self.rng, (self.rng.choice(("A", "B")), self.rng.randint(0, 2))
        drafts = []
        for _ in range(rng.choice((1, 1, 1, 3))):
            self._number += 1
            filling = bytes((self._number % 251 + 1,))
            body = b"%d:" % self._number + filling * rng.choice((0, 5, 90, 700, 1500))
            keys = b"KEYS\x01k%d all\x02TAGS\x01a\x02" % self._number
            drafts.append(MessageDraft(*queue, body, keys, born_ms=1))
        placed = self.store.put_batch(drafts) if len(drafts) > 1 else [self.store.put(drafts[0])]
        for draft, place in zip(drafts, placed, strict=True):
            if place.status is PutStatus.PUT_OK:
                tried = self.tried.setdefault(queue, {})
                tried.setdefault(place.queue_offset, set()).add(draft.body)
        life = self.files.life

        def done(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK and life == self.files.life:
                for draft, place in zip(drafts, placed, strict=True):
                    self.acked.setdefault(queue, {})[place.queue_offset] = draft.body

        if placed[0].status is PutStatus.PUT_OK:
            self.store.on_durable(done)

    async def act(self, steps: int) -> None:
        rng = self.rng
        jobs: list[asyncio.Task[None]] = []
        for _ in range(steps):
            for _ in range(rng.randint(1, 4)):
                self.put()
            self.clock.ms += rng.choice((0, 1, 400, 20_000))
            if rng.random() < 0.2:
                self.store._maintenance.flush_if_due()
            if rng.random() < 0.5:
                self.store._maintenance.preallocator.preallocate_if_due()
            if rng.random() < 0.4:
                await self.store.lookup.follow_log()
            if rng.random() < 0.3 and all(job.done() for job in jobs):
                jobs.append(asyncio.create_task(self.store._maintenance.write_queues()))
            for _ in range(rng.randint(0, 4)):
                await asyncio.sleep(0)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    def detach(self) -> None:
        """Let nothing of the old process act any more."""
        for worker in self.workers:
            worker.is_dead = True
        self.workers.clear()
        self.store._appender._end_batch = lambda: None  # type: ignore[method-assign]

    async def end(self) -> str:
        how = self.rng.choice(("cut", "cut", "cut", "kill", "stop", "stop and cut"))
        self.counts[how.replace(" and ", "_and_")] += 1
        if how.startswith("stop"):
            await self.store.stop()
        self.detach()
        await asyncio.sleep(0)
        if how.endswith("cut"):
            self.files.power_cut()
        else:
            self.files.kill()
        return how

    def check(self) -> None:
        """What was acknowledged is there; what is there was put there; nothing changed places."""
        for queue, acked in self.acked.items():
            if acked and self.store.max_offset(*queue) <= max(acked):
                raise LossError(
                    f"{queue} ends at {self.store.max_offset(*queue)}, not {max(acked)}"
                )
        for queue in set(self.tried) | set(self.store.queues()):
            found = self.read(queue)
            self.counts["messages_compared"] += len(found)
            tried, acked = self.tried.get(queue, {}), self.acked.get(queue, {})
            if sorted(found) != list(range(len(found))):
                raise LossError(f"{queue} has holes: {sorted(found)}")
            for offset, body in found.items():
                if body not in tried.get(offset, ()):
                    raise LossError(f"{queue} {offset} was invented: {body[:20]!r}")
                if acked.get(offset, body) != body:
                    raise LossError(f"{queue} {offset} was acknowledged as something else")
            if missing := set(acked) - set(found):
                raise LossError(f"{queue} lost {missing}")
            # The next process goes on from what was found: it must stay.
            self.acked[queue] = dict(found)

    async def check_lookup(self) -> None:
        """Every message that is there is found by its own key, once, and by no other's."""
        await self.store.lookup.catch_up()
        for topic in ("A", "B"):
            queues = [acked for queue, acked in self.acked.items() if queue[0] == topic]
            # A record torn behind its body counts as whole, and may have lost its keys.
            bodies = [body for acked in queues for body in acked.values() if body in self.keyed]
            for body in self.rng.sample(bodies, min(len(bodies), 10)):
                key = f"k{int(body.partition(b':')[0])}"
                found = (await self.store.lookup.query(topic, key, 64, 0, 1 << 60)).records
                if [stored.decode(raw).body for raw in found] != [body]:
                    raise LossError(f"{topic} {key} finds {len(found)} records")

    def read(self, queue: Queue) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            got = self.store.get(*queue, offset, 32, 1 << 20)
            if got.status is not GetStatus.FOUND:
                return found
            records = list(stored.iterate(got.body))
            if len(records) != got.count:
                raise LossError(f"{queue} {offset}: {len(records)} records of {got.count}")
            for record in records:
                if (record.topic, record.queue_id) != queue:
                    raise LossError(
                        f"{queue} {offset}: a record of {record.topic} {record.queue_id}"
                    )
                found[record.queue_offset] = record.body
                self.keyed.discard(record.body)
                if (properties.find(record.properties, b"KEYS") or b"").endswith(b" all"):
                    self.keyed.add(record.body)
            offset = got.next_offset


async def run_seed(
    seed: int, *, flush: str = "SYNC_FLUSH", syncs: bool = True, names: bool = True
) -> Counter[str]:
    """Run one seed and count what was done; LossError: a check failed."""
    scenario = CrashScenario(seed, flush)
    scenario.files.syncs, scenario.files.syncs_names = syncs, names
    for _ in range(scenario.rng.randint(1, 3)):
        await scenario.act(scenario.rng.randint(1, 12))
        how = await scenario.end()
        if flush != "SYNC_FLUSH" and how == "cut":
            scenario.acked.clear()
        try:
            scenario.open()
        except StoreCorrupt as refused:
            raise LossError(str(refused)) from refused
        scenario.check()
        await scenario.check_lookup()
    await scenario.store.stop()
    return scenario.counts


def run_seeds(seeds: range, **how: object) -> Counter[str]:
    """Run many seeds and count what was done; LossError names the first that lost something."""
    counts: Counter[str] = Counter()

    async def all_seeds() -> None:
        for seed in seeds:
            try:
                counts.update(await run_seed(seed, **how))  # type: ignore[arg-type]
            except LossError as loss:
                raise LossError(f"seed {seed}: {loss}") from loss

    log = logging.getLogger("cometmq.store")
    before = log.level
    log.setLevel(logging.ERROR)  # thousands of warnings would be formatted for nobody
    try:
        asyncio.run(all_seeds())
    finally:
        log.setLevel(before)  # other tests of the process look for warnings
    return counts
