"""The path of a send and of a pull through a broker, step by step, with the CPU of each step.

    python bench/path.py            measure
    python bench/path.py --write    and write the tables of docs/design/hot-path.md

The broker runs in this process, on uvloop where it is installed, with its clients' ends of real
sockets. The requests of an iteration are written first, then the loop runs until they are answered;
only that is measured (as in loop_cost.py). Rounds without and with timers around the steps take
turns. A step's time is that of its functions without the steps inside them. What a round with
timers takes more than one without is taken off the steps, by their calls. The rest is what no step
is: the loop, system calls that no step makes, functions between the steps. Of the iterations of a
round those around the first quartile count, of the rounds the one whose whole is the median. The
key index works behind the answers: its step is what it takes to catch up. Us a request; a pull is
one of 32 messages.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from statistics import fmean
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
from loop_cost import SHAPES, Client, filled
from run import commit
from servers import HERE

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = HERE.parent / "docs" / "design" / "hot-path.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
ROUNDS, ITERATIONS = 7, 120
REST, ALL = "the loop, system calls, the rest", "all, up to the answers"


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
    Step(
        "each pull: its queue, limits, offsets",
        ((PullFastPath, "take"), (PullHandler, "answer_from_memory")),
    ),
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

    def taken(self) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
        """Copies of what was noted."""
        return dict(self.spent), dict(self.calls), dict(self.inside)

    def clear(self) -> None:
        for each in (self.spent, self.calls, self.inside):
            each.clear()


class Iteration(NamedTuple):
    """What one iteration took: its CPU seconds, those of each step, calls, and calls inside."""

    whole: float
    spent: dict[str, float]
    calls: dict[str, int]
    inside: dict[str, int]


def own_share() -> float:
    """Which share of a timer's cost its own step has; the other is that of the step around it."""
    timers = Timers()
    inner = timers.around("inner", lambda: None)
    outer = timers.around("outer", lambda: [inner() for _ in range(1000)])
    bare = min(_timed(lambda: [(lambda: None)() for _ in range(1000)]) for _ in range(50))
    owns, arounds = [], []
    for _ in range(50):
        timers.clear()
        outer()
        owns.append(timers.spent["inner"])
        arounds.append(timers.spent["outer"])
    own = max(min(owns) - bare, 0.0)
    return own / (own + min(arounds))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Bench:
    """A broker and its clients."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self._broker, self._client = broker, client
        self._own_share = own_share()
        self._timers = Timers()
        self._timed_client: Client | None = None

    async def steps(self, row: str) -> dict[str, float]:
        """CPU us a request of a row: each step, the rest, and all of it."""
        self._timers, self._timed_client = Timers(), None
        rounds = [await self._timed(row, await self._whole(row)) for _ in range(ROUNDS)]
        return sorted(rounds, key=itemgetter(ALL))[ROUNDS // 2]

    async def _whole(self, row: str) -> float:
        """CPU seconds of an iteration without timers."""
        spent = sorted([await self._client.iterate(SHAPES[row]) for _ in range(ITERATIONS)])
        await self._settle()
        return spent[ITERATIONS // 4]

    async def _timed(self, row: str, whole: float) -> dict[str, float]:
        """The same, step by step, where an iteration without timers takes `whole` seconds."""
        shape, timers = SHAPES[row], self._timers
        requests, behind = shape[0] * shape[1], 0.0
        iterations: list[Iteration] = []
        with timers.patched(ROWS[row]):
            client = await self._connected(row)
            for _ in range(ITERATIONS):
                timers.clear()
                iterations.append(Iteration(await client.iterate(shape), *timers.taken()))
                behind += iterations[-1].spent.pop(BEHIND.name, 0.0)
            timers.clear()
            await self._settle()
            behind += timers.spent.get(BEHIND.name, 0.0)
        iterations.sort(key=lambda one: one.whole)
        usual = iterations[ITERATIONS // 6 : ITERATIONS // 3]
        found = self._without_timers(usual, whole)
        found[BEHIND.name] = behind / ITERATIONS
        names = [step.name for step in ROWS[row]]
        return {name: found.get(name, 0.0) / requests * 1e6 for name in (*names, REST, ALL)}

    def _without_timers(self, usual: list[Iteration], whole: float) -> dict[str, float]:
        """Seconds of each step of these iterations, in the mean, and of the rest."""
        timed = fmean(one.whole for one in usual)
        calls = fmean(sum(one.calls.values()) for one in usual)
        inside = fmean(sum(one.inside.values()) for one in usual)
        cost, own = (timed - whole) / calls, self._own_share
        found = {}
        for name in usual[0].spent:
            spent = fmean(one.spent.get(name, 0.0) for one in usual)
            own_calls = fmean(one.calls.get(name, 0) for one in usual)
            inner_calls = fmean(one.inside.get(name, 0) for one in usual)
            found[name] = spent - cost * (own * own_calls + (1 - own) * inner_calls)
        steps = sum(fmean(one.spent.get(name, 0.0) for one in usual) for name in found)
        found[REST] = timed - steps - cost * (1 - own) * (calls - inside)
        found[ALL] = whole
        return found

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
        client = await filled(broker)
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
            values = " | ".join(shown(found[row][name]) for row in rows)
            lines.append(f"| {name} | {where} | {values} |")
    return "\n".join(lines) + "\n"


def shown(us: float) -> str:
    """A step's time; `~0` where the timers took more than the step."""
    return f"{us:.2f}" if us >= 0.005 else "~0"


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
