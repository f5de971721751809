"""The path of a send and of a pull through a broker, step by step, with the CPU of each step.

    python bench/path.py            measure
    python bench/path.py --write    and write the tables of docs/design/hot-path.md

The broker runs in this process, on uvloop where it is installed, with its clients' ends of real
sockets. The requests of an iteration are written first, then the loop runs until they are answered;
only that is measured (as in loop_cost.py). Rounds without and with timers around the steps take
turns. A step's time is that of its functions without the steps inside them, less what its timers
cost (measured with functions that do nothing). The rest is what all steps leave of the CPU of the
rounds without timers: the loop, system calls that no step makes, functions between the steps. Of
the iterations of a round the first quartile counts, of the rounds the median. The key index works
behind the answers: its step is what it takes to catch up. Us a request; a pull is one of 32
messages.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from cometmq import native
from cometmq.broker.app import Broker
from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
from cometmq.broker.metrics.broker_stats import BrokerStats
from cometmq.broker.pulls import pull_handler
from cometmq.broker.pulls.pull_check import PullCheck
from cometmq.broker.pulls.pull_fast_path import PullFastPath
from cometmq.broker.pulls.pull_handler import PullHandler
from cometmq.broker.pulls.pull_reader import PullReader
from cometmq.broker.sends.send_fast_path import ConnectionFastPath, FastPaths
from cometmq.net.connection import Connection
from cometmq.net.server import ServerProtocol
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.index.key_index import KeyIndex
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.record_template import RecordTemplate
from cometmq.store.message_appender import MessageAppender
from cometmq.store.message_visibility import VisibilityAdvancer
from cometmq.store.queues.consume_queue import ConsumeQueue
from cometmq.wire.templates.pull_template import PullTemplates
from loop_cost import FILLED, QUEUES, SHAPES, Client
from run import commit
from servers import HERE

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = HERE.parent / "docs" / "design" / "hot-path.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
ROUNDS, ITERATIONS = 7, 120


class Step(NamedTuple):
    """A step: what it does, and the functions that do it."""

    name: str
    functions: tuple[tuple[Any, str], ...]


SEND = (
    Step("chunk from the socket to the fast path", ((ServerProtocol, "data_received"),)),
    Step("what matches the recent template", ((ConnectionFastPath, "chunk"),)),
    Step("frames cut, records and answers made", ((RecordTemplate, "put_frames"),)),
    Step("end of the iteration", ((MessageAppender, "_end_batch"),)),
    Step("records written to the log", ((CommitLog, "write"),)),
    Step("entries appended, held pulls answered", ((VisibilityAdvancer, "publish"),)),
    Step("answers of all connections", ((FastPaths, "_write_answers"),)),
    Step("answers to the socket", ((Connection, "write"),)),
)
BEHIND = Step("key index, behind the answers", ((KeyIndex, "advance"),))
PULL = (
    Step("chunk from the socket to the fast path", ((ServerProtocol, "data_received"),)),
    Step("which fast path", ((ConnectionFastPath, "chunk"),)),
    Step("pulls cut and matched", ((PullTemplates, "cut"),)),
    Step("may this group read this topic", ((PullCheck, "check"),)),
    Step("each pull of the chunk", ((PullFastPath, "take"), (PullHandler, "plan_from_memory"))),
    Step("read, note, encode", ((PullHandler, "answer_from_memory"),)),
    Step("the queue, its limits and offsets", ((PullReader, "read"),)),
    Step("entries of the queue", ((ConsumeQueue, "read"),)),
    Step("records copied out of the log", ((CommitLog, "recent_records"),)),
    Step("counters of the pull", ((BrokerStats, "count_get"), (ConsumerOffsets, "note_pull"))),
    Step("the answer's header", ((pull_handler, "encode_read"),)),
    Step("answer to the socket", ((Connection, "send_parts"), (Connection, "flush"))),
)
ROWS = {
    "send keys 64x1": (*SEND, BEHIND),
    "send keys 1x64": (*SEND, BEHIND),
    "pull 32 8x1": PULL,
    "pull 32 8x8": PULL,
}


class Timers:
    """The time of each step of an iteration, without that of the steps inside it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.inside: dict[str, int] = {}
        """Of each step, how many timed calls were made by it."""
        self._open: list[list[float]] = []
        """Of the calls that go on, seconds and number of the timed calls inside them."""

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        clock, going_on = time.perf_counter, self._open

        def timed(*args: Any, **more: Any) -> Any:
            going_on.append([0.0, 0])
            begun = clock()
            try:
                return function(*args, **more)
            finally:
                took = clock() - begun
                seconds, calls = going_on.pop()
                self.spent[name] = self.spent.get(name, 0.0) + took - seconds
                self.calls[name] = self.calls.get(name, 0) + 1
                self.inside[name] = self.inside.get(name, 0) + int(calls)
                if going_on:
                    going_on[-1][0] += took
                    going_on[-1][1] += 1

        return timed

    def patched(self, steps: tuple[Step, ...]) -> ExitStack:
        """Have the functions of these steps timed."""
        stack = ExitStack()
        for step in steps:
            for owner, name in step.functions:
                timed = self.around(step.name, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, timed))
        return stack

    def clear(self) -> None:
        for each in (self.spent, self.calls, self.inside):
            each.clear()


def timer_costs() -> tuple[float, float]:
    """Seconds that a timer adds to its own step, and to the one around it."""
    timers = Timers()
    inner = timers.around("inner", lambda: None)
    outer = timers.around("outer", lambda: [inner() for _ in range(1000)])
    bare = min(_timed(lambda: [(lambda: None)() for _ in range(1000)]) for _ in range(50)) / 1000
    owns, arounds = [], []
    for _ in range(50):
        timers.clear()
        outer()
        owns.append(timers.spent["inner"] / 1000)
        arounds.append(timers.spent["outer"] / 1000)
    return max(min(owns) - bare, 0.0), min(arounds)


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Bench:
    """A broker and its clients."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self._broker, self._client = broker, client
        self._costs = timer_costs()
        self._timers = Timers()
        self._timed_client: Client | None = None

    async def steps(self, row: str) -> dict[str, float]:
        """CPU us a request of a row: all of it, each step, and the rest."""
        wholes: list[float] = []
        rounds: list[dict[str, float]] = []
        self._timers, self._timed_client = Timers(), None
        for _ in range(ROUNDS):
            wholes.append(await self._whole(row))
            rounds.append(await self._timed(row))
        found = {step.name: median(one.get(step.name, 0.0) for one in rounds) for step in ROWS[row]}
        found["the loop, system calls, the rest"] = median(
            whole - sum(value for name, value in one.items() if name != BEHIND.name)
            for whole, one in zip(wholes, rounds, strict=True)
        )
        found["all, up to the answers"] = median(wholes)
        return found

    async def _whole(self, row: str) -> float:
        requests = SHAPES[row][0] * SHAPES[row][1]
        spent = sorted([await self._client.iterate(SHAPES[row]) for _ in range(ITERATIONS)])
        await self._settle()
        return spent[ITERATIONS // 4] / requests * 1e6

    async def _timed(self, row: str) -> dict[str, float]:
        shape, timers = SHAPES[row], self._timers
        requests = shape[0] * shape[1]
        own, around = self._costs
        found: dict[str, list[float]] = {}
        behind = 0.0
        with timers.patched(ROWS[row]):
            client = await self._connected(row)
            for _ in range(ITERATIONS):
                timers.clear()
                await client.iterate(shape)
                for name, seconds in timers.spent.items():
                    if name == BEHIND.name:
                        behind += seconds
                        continue
                    extra = timers.calls[name] * own + timers.inside[name] * around
                    found.setdefault(name, []).append(max(seconds - extra, 0.0))
            timers.clear()
            await self._settle()
            behind += timers.spent.get(BEHIND.name, 0.0)
        each = {
            name: sorted(times)[len(times) // 4] / requests * 1e6 for name, times in found.items()
        }
        if BEHIND in ROWS[row]:
            each[BEHIND.name] = behind / (ITERATIONS * requests) * 1e6
        return each

    async def _connected(self, row: str) -> Client:
        """Connections that were made while the functions are timed, as some are looked up then."""
        client = self._timed_client
        if client is None:
            client = self._timed_client = Client(self._broker.port)
            await client.connect(SHAPES[row][0])
            for _ in range(ITERATIONS // 4):  # headers are learned
                await client.iterate(SHAPES[row])
            await self._settle()
        return client

    async def _settle(self) -> None:
        """Wait until the key index has all messages."""
        while self._broker.store.lookup.behind_bytes:
            await asyncio.sleep(0.02)


async def measured() -> dict[str, dict[str, float]]:
    root = Path(tempfile.mkdtemp(prefix="cometmq-bench-"))
    settings = BrokerSettings(store_path_root_dir=str(root), broker_name="a", listen_port=0)
    broker = Broker.open(settings, StoreSettings())
    await broker.start()
    try:
        broker.state.topics.ensure("bench128", QUEUES)
        await asyncio.sleep(0.5)
        client = Client(broker.port)
        await client.connect(64)
        while broker.store.max_offset("bench128", 0) < FILLED:
            await client.iterate(SHAPES["send 16x16"])
        bench = Bench(broker, client)
        return {row: await bench.steps(row) for row in ROWS}
    finally:
        await broker.stop()
        shutil.rmtree(root, ignore_errors=True)


def tables(found: dict[str, dict[str, float]]) -> str:
    """The tables of the page, in Markdown."""
    lines = [
        f"`python bench/path.py --write`, commit {commit()}, CPython {platform.python_version()}, "
        f"{loop_name()}, hot loops in {native.form()}; CPU us a request.",
    ]
    for rows in (("send keys 64x1", "send keys 1x64"), ("pull 32 8x1", "pull 32 8x8")):
        lines += ["", "| step | where | " + " | ".join(rows) + " |", "|---|---|---|---|"]
        for name in found[rows[0]]:
            places = [step for step in ROWS[rows[0]] if step.name == name]
            where = ", ".join(f"`{place(each)}`" for each in places[0].functions) if places else ""
            values = " | ".join(f"{found[row][name]:.2f}" for row in rows)
            lines.append(f"| {name} | {where} | {values} |")
    return "\n".join(lines) + "\n"


def place(function: tuple[Any, str]) -> str:
    owner, name = function
    return f"{owner.__name__.removeprefix('cometmq.')}.{name}"


def loop_name() -> str:
    return "asyncio" if "uvloop" not in sys.modules else "uvloop"


def main() -> None:
    if not set(sys.argv[1:]) <= {"--write"}:
        sys.exit(__doc__)
    try:
        import uvloop
    except ImportError:
        found = asyncio.run(measured())
    else:
        found = uvloop.run(measured())
    text = tables(found)
    print(text)
    if "--write" in sys.argv:
        page = PAGE.read_text()
        head, tail = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(head + BEGIN + text + END + tail)


if __name__ == "__main__":
    main()
