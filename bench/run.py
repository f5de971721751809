"""Sends and pulls against the broker, each beside a bare framed echo in the same minute.

    python bench/run.py                 all shapes, three rounds each, about three minutes
    python bench/run.py --quick         the shapes with a mark, one round
    python bench/run.py --only 64x1     shapes whose name contains the text
    python bench/run.py --json          one JSON object instead of the table
    python bench/run.py --save NAME     also writes bench/results/NAME.txt
    python bench/run.py --history       also keeps it in bench/results/history.jsonl, beside the
                                        last run of the same machine

Before each round the server has rested: the broker files keys behind the answers.
The ratio to the echo carries over between machines, absolute figures do not. A round in which
neither side came to 0.9 of its core and p99 went past 2 ms was starved by other tenants: it is
dropped and repeated. The generator pins itself to one core and the server to another where there
are two.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import history
from servers import HERE, Cores, Server, broker, compiled, echo, measure, save, until_idle

ROUNDS, EXTRA_ROUNDS = 3, 3
SATURATED, STARVED_P99_MS = 0.9, 2.0
GENERATOR_LIMIT = 0.95


@dataclass(frozen=True)
class Shape:
    """What the generator does: C connections with W requests outstanding on each."""

    work: str
    connections: int
    window: int
    body: int
    keys: int = 0
    pull: int = 0
    mark: float = 0.0
    """Least ratio to the echo; for pulls, messages to the echo's requests at 64x1."""

    @property
    def name(self) -> str:
        return f"{self.work} {self.body} B {self.connections}x{self.window}"

    @property
    def must_saturate(self) -> bool:
        return self.connections * self.window > 1

    def options(self) -> dict[str, object]:
        return {
            "connections": self.connections,
            "window": self.window,
            "body": self.body,
            "keys": self.keys,
            "pull": self.pull,
            "topic": f"bench{self.body}",
        }


SHAPES = (
    Shape("send", 1, 1, 128),
    Shape("send", 16, 1, 128),
    Shape("send", 64, 1, 128, mark=0.45),
    Shape("send", 1, 64, 128),
    Shape("send", 16, 16, 128),
    Shape("send keys", 64, 1, 128, keys=1, mark=0.5),
    Shape("send keys", 1, 64, 128, keys=1, mark=0.27),
    Shape("send", 1, 1, 1024),
    Shape("send", 16, 1, 1024),
    Shape("send", 64, 1, 1024),
    Shape("send", 1, 64, 1024),
    Shape("send", 16, 16, 1024),
    Shape("pull 32", 1, 1, 128, pull=32),
    Shape("pull 32", 8, 1, 128, pull=32, mark=5.2),
    Shape("pull 32", 8, 8, 128, pull=32),
    Shape("pull 32", 8, 1, 1024, pull=32),
)


@dataclass(frozen=True)
class Round:
    """What one run of the generator found."""

    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    server_us: float
    generator_us: float
    server_share: float
    generator_share: float
    starved: bool

    @classmethod
    def of(cls, raw: dict[str, float], shape: Shape, server: Server) -> "Round":
        if raw["errors"] or raw["unmatched"] or not raw["messages"]:
            sys.exit(
                f"bench: {shape.name} against {server.name}: {raw['requests']} answers, "
                f"{raw['errors']} with an error code (the first {raw['first_error']}), "
                f"{raw['unmatched']} that fit no request, {raw['messages']} messages"
            )
        wall, count = raw["wall_s"], raw["messages"]
        server_share, own_share = raw["server_cpu_s"] / wall, raw["own_cpu_s"] / wall
        return cls(
            rate=count / wall,
            p50_ms=raw["p50_ms"],
            p99_ms=raw["p99_ms"],
            p999_ms=raw["p999_ms"],
            server_us=raw["server_cpu_s"] / count * 1e6,
            generator_us=raw["own_cpu_s"] / count * 1e6,
            server_share=server_share,
            generator_share=own_share,
            starved=shape.must_saturate
            and max(server_share, own_share) < SATURATED
            and raw["p99_ms"] > STARVED_P99_MS,
        )

    @classmethod
    def middle(cls, rounds: list["Round"]) -> "Round":
        """The median of each figure, over the healthy rounds where there are any."""
        sound = [r for r in rounds if not r.starved] or rounds
        values = {f: median(getattr(r, f) for r in sound) for f in cls.__annotations__}
        return cls(**values | {"starved": all(r.starved for r in rounds)})


@dataclass(frozen=True)
class Line:
    """One shape: the echo (none for pulls) and the broker."""

    shape: Shape
    echo: Round | None
    broker: Round
    ratio: float | None

    @property
    def is_starved(self) -> bool:
        return self.broker.starved or bool(self.echo and self.echo.starved)

    def notes(self) -> str:
        words = []
        if self.is_starved:
            words.append("starved: worthless")
        generator = self.broker.generator_share
        if generator > GENERATOR_LIMIT and generator > self.broker.server_share:
            words.append("the generator was the limit")
        if self.echo and self.echo.generator_share > GENERATOR_LIMIT:
            words.append("echo: generator at its limit too")
        if self.shape.mark and self.ratio:
            met = "met" if self.ratio >= self.shape.mark else "MISSED"
            words.append(f"mark {self.shape.mark} {met}")
        return ", ".join(words)


class Bench:
    """Runs shapes in turn against both servers and keeps the lines."""

    def __init__(self, args: argparse.Namespace, in_c: bool) -> None:
        self.args, self.in_c, self.cores = args, in_c, Cores.pick()
        self.lines: list[Line] = []
        self.echo_64x1: float | None = None

    def run(self, shapes: Iterable[Shape]) -> None:
        for body in (128, 1024):
            todo = [s for s in shapes if s.body == body]
            if not todo:
                continue
            with (
                echo(self.cores, self.in_c) as limit,
                broker(self.cores, self.args.store, self.args.conf) as server,
            ):
                if todo[0].pull:  # nothing was sent yet that could be pulled
                    fill = Shape("fill", 16, 16, body)
                    measure(server, self.cores, self.in_c, **fill.options(), seconds=1, warm=0.1)
                for shape in todo:
                    self.add(shape, limit, server)

    def add(self, shape: Shape, limit: Server, server: Server) -> None:
        echoes: list[Round] = []
        brokers: list[Round] = []
        wanted = 1 if self.args.quick else ROUNDS
        for _ in range(wanted + EXTRA_ROUNDS):
            if not shape.pull:
                echoes.append(self.round(shape, limit))
            brokers.append(self.round(shape, server))
            if all(
                len([r for r in rs if not r.starved]) >= wanted for rs in (echoes, brokers) if rs
            ):
                break
        middle = Round.middle(echoes) if echoes else None
        line = Line(shape, middle, Round.middle(brokers), None)
        against = middle.rate if middle else self.echo_64x1
        if shape.name == "send 128 B 64x1" and middle:
            self.echo_64x1 = middle.rate
        if against:
            line = Line(shape, middle, line.broker, line.broker.rate / against)
        self.lines.append(line)
        if not self.args.json:
            print(row(line), flush=True)

    def round(self, shape: Shape, server: Server) -> Round:
        until_idle(server)
        timing = {"seconds": self.args.seconds, "warm": self.args.warm}
        raw = measure(server, self.cores, self.in_c, **shape.options(), **timing)
        return Round.of(raw, shape, server)


def row(line: Line) -> str:
    r, e = line.broker, line.echo
    return (
        f"{line.shape.name:<24}{e.rate / 1e3 if e else 0:>9.1f}{r.rate / 1e3:>9.1f}"
        f"{line.ratio or 0:>7.2f}{r.p50_ms:>8.2f}{r.p99_ms:>8.2f}{r.p999_ms:>8.2f}"
        f"{e.server_us if e else 0:>7.2f}{r.server_us:>8.2f}{r.generator_us:>7.2f}"
        f"{r.server_share:>7.2f}{r.generator_share:>6.2f}  {line.notes()}"
    ).rstrip()


HEADING = (
    f"{'':<24}{'echo':>9}{'broker':>9}{'ratio':>7}{'p50':>8}{'p99':>8}{'p999':>8}"
    f"{'echo':>7}{'broker':>8}{'gen':>7}{'broker':>7}{'gen':>6}\n"
    f"{'':<24}{'k/s':>9}{'k/s':>9}{'':>7}{'ms':>8}{'ms':>8}{'ms':>8}"
    f"{'us':>7}{'us':>8}{'us':>7}{'core':>7}{'core':>6}"
)


def commit() -> str:
    """The commit of this tree; with -dirty where files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True).stdout.strip()


def machine(cores: Cores, why_python: str | None) -> str:
    build = platform.python_implementation(), platform.python_version(), platform.python_compiler()
    pinned = f"server on core {cores.server}, generator on core {cores.generator}"
    return "\n".join(
        [
            f"command    python bench/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}",
            f"date       {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit()}",
            f"machine    {history.processor()}, {platform.system()} {platform.release()}",
            f"python     {' '.join(build)}",
            f"pinning    {pinned if cores.server >= 0 else 'none'}",
            f"generator  {'C' if not why_python else f'Python, which is slower: {why_python}'}",
        ]
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shapes with a mark, one round each")
    parser.add_argument("--only", default="", help="shapes whose name contains this text")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    parser.add_argument("--history", action="store_true", help="keep the run in history.jsonl")
    parser.add_argument("--check", action="store_true", help="exit 1 when a mark is missed")
    parser.add_argument("--seconds", type=float, default=1.2, help="measured time of a round")
    parser.add_argument("--warm", type=float, default=0.4, help="time before it is measured")
    parser.add_argument("--store", type=Path, help="parent directory of the stores (default: temp)")
    parser.add_argument("--conf", action="append", default=[], help="a broker.conf line, key=value")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    why_python = compiled()
    bench = Bench(args, in_c=not why_python)
    about = machine(bench.cores, why_python)
    chosen = [s for s in SHAPES if args.only in s.name and (s.mark or not args.quick)]
    if not chosen:
        sys.exit(
            f"bench: no shape contains {args.only!r}; there are: "
            + ", ".join(s.name for s in SHAPES)
        )
    if not args.json:
        print(f"{about}\n\n{HEADING}", flush=True)
    bench.run(chosen)
    if args.json:
        lines = [
            {
                "name": line.shape.name,
                "ratio": line.ratio,
                "mark": line.shape.mark or None,
                "echo": line.echo and vars(line.echo),
                "broker": vars(line.broker),
                "notes": line.notes(),
            }
            for line in bench.lines
        ]
        print(json.dumps({"about": about.splitlines(), "lines": lines}, indent=1))
    if args.history:
        sound = [line for line in bench.lines if not line.is_starved]
        ratios = {line.shape.name: (line.ratio, line.broker.server_us) for line in sound}
        print(history.add(commit(), bench.cores, ratios), file=sys.stderr)
    save(args.save, "\n".join([about, "", HEADING, *map(row, bench.lines)]))
    if args.check and any("MISSED" in line.notes() for line in bench.lines):
        sys.exit("bench: a mark was missed")


if __name__ == "__main__":
    main()
