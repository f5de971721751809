"""A process that appends is killed repeatedly: what it acknowledged is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from threading import Timer

import pytest

from cometmq.store.message_store import GetStatus, MessageStore
from cometmq.wire.records import log_record as stored
from crash.appender import body_of, open_store
from oracle_runs import record_run

REPLAY = "pytest tests/crash/test_kill_the_store.py"
APPENDER = Path(__file__).with_name("appender.py")
Queue = tuple[str, int]


def run_and_kill(root: Path, flush: str, seed: int, after_s: float) -> dict[Queue, dict[int, int]]:
    """Let one child append and kill it; what it acknowledged, by queue and offset."""
    command = [sys.executable, str(APPENDER), str(root), flush, str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        first = child.stdout.readline()
        assert first, "the child died by itself"
        killer = Timer(after_s, child.kill)
        killer.start()
        lines = [first, *child.stdout]
        killer.join()
    assert child.returncode == -9
    acked: dict[Queue, dict[int, int]] = defaultdict(dict)
    for line in lines:
        if line.endswith(b"\n"):
            topic, queue_id, offset, number = line.split()
            acked[topic.decode(), int(queue_id)][int(offset)] = int(number)
    return acked


def read(store: MessageStore, queue: Queue) -> list[bytes]:
    bodies: list[bytes] = []
    while (got := store.get(*queue, len(bodies), 32, 1 << 30)).status is GetStatus.FOUND:
        bodies += [record.body for record in stored.iterate(got.body)]
    return bodies


async def check_store(root: Path, flush: str, acked: dict[Queue, dict[int, int]], how: str) -> None:
    """Open what the child left: all that was acknowledged is there, in order, nothing invented.

    And each message is found by its key, once.
    """
    store = open_store(root, flush)
    known = {queue: list(offsets.values()) for queue, offsets in acked.items()}
    for queue in store.queues():
        bodies = read(store, queue)
        assert len(bodies) == store.max_offset(*queue)
        numbers = [int(body.split()[0]) for body in bodies]
        assert [body_of(number) for number in numbers] == bodies
        assert numbers == sorted(set(numbers))
        for offset, number in acked.get(queue, {}).items():
            assert numbers[offset] == number
        acked.pop(queue, None)
    assert not acked
    await store.start()  # the index writes as it goes; else it would stop at what memory may hold
    await store.lookup.catch_up(30_000)
    for (topic, _), numbers in known.items():
        for number in Random(len(numbers)).sample(numbers, min(len(numbers), 20)):
            found = (await store.lookup.query(topic, f"k{number}", 64, 0, 1 << 60)).records
            assert [stored.decode(raw).body for raw in found] == [body_of(number)]
    if how == "stop":
        await store.stop()
    else:
        store.abandon()


def rounds(root: Path, flush: str, seeds: range) -> int:
    """Kill a child for each seed; how many acknowledged messages the last start had to have."""
    rng, acked = Random(seeds.start), defaultdict(dict)
    for number in seeds:
        fresh = run_and_kill(root, flush, number, rng.choice((0.0, 0.01, 0.05, 0.2)))
        for queue, offsets in fresh.items():
            acked[queue] |= offsets
        how = rng.choice(("stop", "leave"))
        asyncio.run(check_store(root, flush, {q: dict(o) for q, o in acked.items()}, how))
    return sum(map(len, acked.values()))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_killed_a_few_times_the_store_keeps_what_it_acknowledged(tmp_path, flush):
    compared = rounds(tmp_path / "store", flush, range(1, 7))
    record_run("kill-store", flush, replay=REPLAY, kills=6, messages_compared=compared)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_killed_two_hundred_times_the_store_keeps_what_it_acknowledged(tmp_path, flush):
    # A store for every 20 kills: a round reads all that is there, so one for all is quadratic.
    compared = sum(
        rounds(tmp_path / f"store-{first}", flush, range(first, first + 20))
        for first in range(1, 201, 20)
    )
    replay = f"pytest -m slow {REPLAY.partition(' ')[2]}"
    record_run("kill-store-200", flush, replay=replay, kills=200, messages_compared=compared)
