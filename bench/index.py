"""What the key index costs a message: CPU of one loop over a real log, without a broker around it.

    python bench/index.py                      this tree
    python bench/index.py BEFORE AFTER         two checkouts, measured in turns
    python bench/index.py --save key-index     also writes bench/results/key-index.txt

Each tree is one process. It fills a log of --count messages for each shape and then, --rounds
times, indexes all of it into a new file of full size: once without writing it, which is the loop's
share, and once written as often as the broker does, with all CPU that takes. Prints the least and
the median of the rounds, and of the second figure the median; a slice is what holds the loop up at
a time (99th percentile, CPU). `of 1 size` are messages as like as a bench makes them; `spread` have
bodies of 64 to 192 bytes, keys of one to six digits and three tags, as real producers do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.message_store import MessageStore

SHAPES = ("id, of 1 size", "id key tag, of 1 size", "id key tag, spread", "id tag, batches")
BODY = bytes(97 + i % 26 for i in range(192))
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
PUTS = 64
"""Messages of one iteration of the loop."""


def unique_id(number: int) -> bytes:
    """32 digits as clients make them: client, milliseconds, counter."""
    return b"7F0000010E6B18B4AAC2%08X%04X" % (0x19AB_0000 + number // 20, number & 0xFFFF)


def properties_of(shape: str, number: int) -> bytes:
    unique = b"UNIQ_KEY\x01%b\x02WAIT\x01true\x02" % unique_id(number)
    if shape == "id, of 1 size":
        return unique
    if shape == "id tag, batches":
        return unique + b"TAGS\x01TagA\x02"
    if shape == "id key tag, of 1 size":
        return b"KEYS\x01order-%08d\x02%bTAGS\x01TagA\x02" % (number, unique)
    tag = (b"A", b"paid", b"shipped")[number % 7 % 3]
    return b"KEYS\x01%d\x02%bTAGS\x01%b\x02" % (number * 7919 % 999_983, unique, tag)


async def fill(store: MessageStore, shape: str, count: int) -> None:
    from cometmq.store.message_store import MessageDraft, PutStatus

    for number in range(count):
        length = 64 + number * 37 % 129 if shape.endswith("spread") else 128
        queue = number // 32 % 4 if shape.endswith("batches") else number % 4
        raw = properties_of(shape, number)
        draft = MessageDraft("bench128", queue, BODY[:length], raw, born_ms=1, born_host=HOST)
        assert store.put(draft).status is PutStatus.PUT_OK
        if number % PUTS == PUTS - 1:
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)


def measure(store: MessageStore, root: Path, *, is_written: bool) -> tuple[float, float]:
    """CPU seconds to index all of the log, and the 99th percentile of a slice."""
    from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
    from cometmq.settings.store import StoreSettings
    from cometmq.store.index.key_index import KeyIndex
    from cometmq.store.log.mapped_file_queue import OpenFiles

    end, slices, more = store.max_phy_offset, [0.0] * 2, True
    log = store._parts.commit_log  # noqa: SLF001 - a store's own index would fill itself
    index = KeyIndex(SystemFiles(), SystemClock(), root, StoreSettings(), log, OpenFiles(9))
    clock = time.process_time
    before = clock()
    while more:
        begun = clock()
        more = index.advance(end)
        slices.append(clock() - begun)
        if is_written and index.is_write_due:
            index.flush_now()
    if is_written:
        index.flush_now()
    spent = clock() - before
    assert index.position == end
    index.close()
    shutil.rmtree(root, ignore_errors=True)
    return spent, quantiles(slices, n=100)[-1]


async def serve(count: int) -> None:
    """Fill a log for each shape, then measure the shape that a line of stdin names."""
    from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles, ThreadWorker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore

    root = Path(tempfile.mkdtemp(prefix="cometmq-bench-"))
    settings = StoreSettings(message_index_enable=False, commit_log_file_bytes=1 << 28)
    stores = {}
    for number, shape in enumerate(SHAPES):
        stores[shape] = store = MessageStore.open(
            root / str(number),
            settings,
            clock=SystemClock(),
            files=SystemFiles(),
            tags_code=lambda _topic, _raw, _ms: 0,
            store_host=HOST,
            worker=ThreadWorker,
            ram=1 << 30,
            refuse=lambda: None,
        )
        await fill(store, shape, count)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        store = stores[line.strip()]
        fast, slowest = measure(store, root / "index", is_written=False)
        written, _ = measure(store, root / "index", is_written=True)
        print(json.dumps([fast / count * 1e6, written / count * 1e6, slowest * 1e3]), flush=True)
    for store in stores.values():
        await store.stop()
    shutil.rmtree(root, ignore_errors=True)


class Side:
    """A process with the index of one tree."""

    def __init__(self, root: Path, count: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"}
        command = [sys.executable, __file__, "--serve", "--count", str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)
        os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})

    def line(self) -> str:
        return self._process.stdout.readline().strip() or sys.exit("bench: a process ended")

    def measure(self, shape: str) -> list[float]:
        self._process.stdin.write(shape + "\n")
        self._process.stdin.flush()
        return json.loads(self.line())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)


def lines(trees: list[Path], count: int, rounds: int) -> Iterator[str]:
    """The table, line by line."""
    sides = [Side(tree, count) for tree in trees]
    for side in sides:
        side.line()
    yield f"{'us a message':<24}{'':<8}{'least':>8}{'median':>8}{'written':>9}{'slice ms':>10}"
    for shape in SHAPES:
        found: list[list[list[float]]] = [[] for _ in sides]
        for number in range(rounds):
            order = list(enumerate(sides))
            for place, side in order if number % 2 else order[::-1]:
                found[place].append(side.measure(shape))
        for place, rows in enumerate(found):
            fast, written, slices = ([row[k] for row in rows] for k in range(3))
            name = ("before", "after")[place] if len(sides) > 1 else ""
            figures = min(fast), median(fast), median(written), median(slices)
            yield "{:<24}{:<8}{:>8.2f}{:>8.2f}{:>9.2f}{:>10.2f}".format(shape, name, *figures)
    for side in sides:
        side.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", type=Path, help="one or two checkouts")
    parser.add_argument("--count", type=int, default=60_000, help="messages of each shape")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(asked.count))
        return
    trees = [tree.resolve() for tree in asked.trees] or [Path(__file__).resolve().parent.parent]
    shown = []
    for line in lines(trees[:2], asked.count, asked.rounds):
        print(line, flush=True)
        shown.append(line)
    if asked.save:
        from run import machine
        from servers import save

        save(asked.save, "\n".join((*machine("python bench/index.py"), *shown)))


if __name__ == "__main__":
    main()
