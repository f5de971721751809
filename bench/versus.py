"""The broker beside Apache RocketMQ, Redis streams, NATS JetStream and a bare echo: `make versus`.

    python bench/versus.py                    all parts, about 45 minutes
    python bench/versus.py --only bursts      one part (bursts, sustained, flushed, pulls, clients,
                                              footprint)
    python bench/versus.py --seconds 5        how long a sustained round lasts (60)
    python bench/versus.py --rounds 1         how many rounds of all others (5)
    python bench/versus.py --write            also writes docs/performance.md

One generator (bench/load.c) asks all servers in turn for the same: messages as a real producer
makes them, each with its own UNIQ_KEY, KEYS and TAGS. It shares the cores with the server that is
measured; the others are stopped meanwhile. A figure is the median of the rounds, with the least and
the most behind it. The key index of both brokers is on. Needs cc, Java and Apache's jars
(`make interop` fetches them); Redis and NATS are left out, and said to be, where redis-server or
nats-server is not found. Results go to bench/results/versus.json, part by part.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import peers
import performance_page
import versus_clients
from apache import ANYWHERE, CACHE, apache
from run import machine
from servers import HERE, Server, broker, compiled, echo, measure, program, until_idle

RESULTS = HERE / "results" / "versus.json"
SHAPES = ((64, 1), (1, 64), (16, 16))
WARM_UP = {"connections": 16, "window": 4, "body": 128, "keys": 1, "topic": "warm"}
BURST_S, CLIENT_S, JAVA_WARM_S = 3.0, 6.0, 15.0
SYNC = {"flushDiskType": "SYNC_FLUSH"}
Made = Callable[[], AbstractContextManager[Server]]


@dataclass
class Row:
    """What one server did with one shape, round by round."""

    part: str
    work: str
    server: str
    rates: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    generator_share: list[float] = field(default_factory=list)
    behind_s: float = 0.0
    """How long the server went on working after the last answer."""

    @property
    def rate(self) -> float:
        return median(self.rates)

    def add(self, raw: dict[str, float], server: Server) -> None:
        """Take what one round of the generator found."""
        if raw["errors"] or raw["unmatched"] or not raw["messages"]:
            sys.exit(f"versus: {self.work} against {server.name}: {raw}")
        wall, count = raw["wall_s"], raw["messages"]
        self.rates.append(count / wall)
        self.p50_ms.append(raw["p50_ms"])
        self.p99_ms.append(raw["p99_ms"])
        self.cpu_us.append(raw["server_cpu_s"] / count * 1e6)
        self.generator_share.append(raw["own_cpu_s"] / wall)

    def add_clients(self, raw: dict[str, float]) -> None:
        """Take what one round of a client found; the CPU is the client's."""
        if not raw["messages"]:
            sys.exit(f"versus: {self.work} on {self.server}: no message went through")
        self.rates.append(raw["messages"] / raw["seconds"])
        self.p50_ms.append(raw["p50_ms"])
        self.p99_ms.append(raw["p99_ms"])
        self.cpu_us.append(raw["cpu_s"] / raw["messages"] * 1e6)
        self.generator_share.append(0.0)


class Contest:
    """Servers that are measured in turns; only the one whose turn it is runs."""

    def __init__(self, part: str, servers: list[Server], *, stops: bool) -> None:
        self.part, self.servers, self.rows, self._stops = part, servers, [], stops
        self._signal(signal.SIGSTOP, *servers)

    def close(self) -> None:
        self._signal(signal.SIGCONT, *self.servers)

    @contextmanager
    def turn(self, server: Server) -> Iterator[None]:
        self._signal(signal.SIGCONT, server)
        try:
            until_idle(server, 30)
            yield
        finally:
            self._signal(signal.SIGSTOP, server)

    def _signal(self, number: int, *servers: Server) -> None:
        for server in servers:
            if self._stops:
                os.kill(server.pid, number)

    def warm_up(self) -> None:
        """Let each take messages for a while: a JVM compiles what it runs often."""
        for server in self.servers:
            with self.turn(server):
                seconds = JAVA_WARM_S if server.name.startswith("Apache") else 1.0
                ask(server, seconds=seconds, **WARM_UP)

    def run(self, work: str, seconds: float, rounds: int, **options: object) -> None:
        """Rounds of one shape for each server, in turns."""
        rows = {server.name: Row(self.part, work, server.name) for server in self.servers}
        for _ in range(rounds):
            for server in self.servers:
                with self.turn(server):
                    row = rows[server.name]
                    row.add(ask(server, seconds=seconds, **options), server)
                    began = time.monotonic()
                    until_idle(server, 60)
                    row.behind_s = max(row.behind_s, time.monotonic() - began)
        self.show(work, list(rows.values()))

    def show(self, work: str, rows: list[Row]) -> None:
        """Keep the rows of a shape, and print them."""
        self.rows += rows
        figures = ", ".join(f"{row.server} {row.rate / 1e3:.1f} k/s" for row in rows)
        print(f"{self.part:<10} {work:<26} {figures}", flush=True)


def ask(server: Server, **options: object) -> dict[str, float]:
    """One round of the generator, in the server's protocol."""
    kind = server.name.split()[0].lower()
    if kind in ("redis", "nats"):
        options["speak"] = kind
        options["topic"] = "bench"
    elif server.name == "echo":
        options["keys"] = 1
    return measure(server, ANYWHERE, True, warm=0.5, **options)


@contextmanager
def ours(**settings: object) -> Iterator[Server]:
    """`cometmq standalone` with a fresh store."""
    lines = [f"{key}={value}" for key, value in settings.items()]
    with broker(ANYWHERE, None, lines) as server:
        yield Server("CometMQ", server.port, server.pid, server.namesrv)


@contextmanager
def theirs(jars: Path, **settings: object) -> Iterator[Server]:
    """Apache's name server and broker with a fresh store."""
    with apache(jars, **settings) as server:
        yield Server("Apache", server.port, server.pid, server.namesrv)


def others(*, durable: bool) -> list[Made]:
    """Redis and NATS, as far as they are on this machine."""
    found = []
    for name, made in (("redis-server", peers.redis), ("nats-server", peers.nats)):
        if peers.program(name):
            found.append(partial(made, durable=durable))
        else:
            print(f"{name} is not on this machine: left out", flush=True)
    return found


def contest(part: str, made: list[Made], *, stops: bool = True) -> AbstractContextManager[Contest]:
    """All servers of a part, started and warmed up; without `stops` they idle between turns."""

    @contextmanager
    def opened() -> Iterator[Contest]:
        with ExitStack() as stack:
            found = Contest(part, [stack.enter_context(one()) for one in made], stops=stops)
            stack.callback(found.close)
            found.warm_up()
            yield found

    return opened()


def bursts(jars: Path, _seconds: float, rounds: int) -> list[Row]:
    """Sends for three seconds, after a rest."""
    made = [ours, partial(theirs, jars), *others(durable=False), partial(echo, ANYWHERE, True)]
    with contest("bursts", made) as found:
        for body in (128, 1024):
            for shape in SHAPES:
                sends(found, shape, body, BURST_S, rounds)
        return found.rows


def sustained(jars: Path, seconds: float, _rounds: int) -> list[Row]:
    """Sends without a pause; how long each works on after the last one is part of the figure."""
    rows = []
    for shape in SHAPES:  # each in a fresh store: 60 s are some gigabytes
        with contest("sustained", [ours, partial(theirs, jars), *others(durable=False)]) as found:
            sends(found, shape, 128, seconds, 1)
            rows += found.rows
    return rows


def flushed(jars: Path, _seconds: float, rounds: int) -> list[Row]:
    """Sends that are answered once they are on the disk."""
    made = [partial(ours, **SYNC), partial(theirs, jars, **SYNC), *others(durable=True)]
    with contest("flushed", made) as found:
        for shape in SHAPES:
            sends(found, shape, 128, BURST_S, rounds)
        return found.rows


def sends(found: Contest, shape: tuple[int, int], body: int, seconds: float, rounds: int) -> None:
    """Rounds of sends, so many on each of so many connections."""
    connections, window = shape
    found.run(
        f"send {body} B {connections}x{window}", seconds, rounds, keys=1, body=body,
        connections=connections, window=window, topic=f"{found.part}{body}",
    )  # fmt: skip


def pulls(jars: Path, _seconds: float, rounds: int) -> list[Row]:
    """Pulls of 32 messages of a topic that was filled before."""
    with contest("pulls", [ours, partial(theirs, jars)]) as found:
        for server in found.servers:
            with found.turn(server):
                ask(server, connections=16, window=16, body=128, keys=1, seconds=5, topic="filled")
        for connections, window in ((8, 1), (8, 8)):
            found.run(
                f"pull 32 of 128 B {connections}x{window}", BURST_S, rounds, pull=32, body=128,
                connections=connections, window=window, topic="filled",
            )  # fmt: skip
        return found.rows


def clients(jars: Path, _seconds: float, rounds: int) -> list[Row]:
    """Our client on our broker, Java's on Apache's: both share the cores with their broker."""
    with (
        tempfile.TemporaryDirectory(prefix="cometmq-versus-") as classes,
        # a name server forgets a broker that is stopped
        contest("clients", [ours, partial(theirs, jars)], stops=False) as found,
    ):
        versus_clients.compile_java(jars, Path(classes))
        by_java = partial(versus_clients.run_java, jars=jars, classes=Path(classes))
        for server in found.servers:
            with found.turn(server):
                ask(server, connections=16, window=16, body=128, keys=1, seconds=30, topic="filled")
        for work in versus_clients.OURS:
            rows = [Row("clients", work, server.name) for server in found.servers]
            for _ in range(rounds):
                for row, server in zip(rows, found.servers, strict=True):
                    with found.turn(server):
                        run = versus_clients.run_ours if server.name == "CometMQ" else by_java
                        row.add_clients(run(work, server.namesrv, CLIENT_S))
            found.show(work, rows)
        return found.rows


def footprint(jars: Path, _seconds: float, rounds: int) -> list[Row]:
    """From start to ready, and the memory of a broker and its name server that do nothing."""
    rows = []
    for made in (ours, partial(theirs, jars), *others(durable=False)):
        row, memory = Row("footprint", "start to ready, s", ""), Row("footprint", "memory, MB", "")
        for _ in range(rounds):
            began = time.monotonic()
            with made() as server:
                row.rates.append(time.monotonic() - began)
                until_idle(server, 30)
                memory.rates.append(resident_mb(server))
                row.server = memory.server = server.name
        rows += (row, memory)
        print(f"footprint  {row.server} {row.rate:.2f} s, {memory.rate:.0f} MB", flush=True)
    return rows


def resident_mb(server: Server) -> float:
    """The memory of the server's process, and of the JVM of Apache's name server beside it."""
    pids = {server.pid}
    if server.name == "Apache":
        lines = subprocess.run(["pgrep", "-f", "NamesrvStartup"], capture_output=True, text=True)
        pids |= set(map(int, lines.stdout.split()))
    return sum(_resident_kb(pid) for pid in pids) / 1024


def _resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


PARTS = {one.__name__: one for one in (bursts, sustained, flushed, pulls, clients, footprint)}


def keep(part: str, rows: list[Row], about: str) -> None:
    """Put a part's rows into the results, in place of its earlier ones."""
    told = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    told[part] = {"about": about, "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jars", type=Path, default=CACHE / "5.5.0", help="Apache's jars")
    parser.add_argument("--only", choices=PARTS, default="", help="one part")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a sustained round")
    parser.add_argument("--rounds", type=int, default=5, help="of all but the sustained ones")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md, too")
    args = parser.parse_args()
    if not any(args.jars.glob("rocketmq-broker-*.jar")) or not shutil.which("java"):
        parser.error(f"no Java, or no broker of Apache RocketMQ in {args.jars}: run make interop")
    if why := compiled():
        parser.error(f"the generator is written in C, and there is {why}")
    assert program("load", True), "the generator was built"
    for name, part in PARTS.items():
        if args.only in ("", name):
            load = os.getloadavg()[0]
            rows = part(args.jars, args.seconds, args.rounds)
            keep(name, rows, f"{machine(ANYWHERE, None)}\nload       {load:.1f} at the start")
    if args.write:
        performance_page.write(RESULTS)


if __name__ == "__main__":
    main()
