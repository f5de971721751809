"""Sends under SYNC_FLUSH beside Redis streams with `appendfsync always`, in turn.

    python bench/sync_flush.py            64 connections x 1 and 1 x 64, three rounds each
    python bench/sync_flush.py --save sync-flush

Both acknowledge only what the disk has. Redis is driven by its own redis-benchmark (XADD of one
field of 128 bytes), the broker by our generator; each server has one core and its client the other.
Without redis-server and redis-benchmark on PATH the broker is measured alone.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from run import machine
from servers import Cores, Server, broker, compiled, end, measure, pin, save, wait_ready

ROUNDS, BODY, MARK = 3, 128, 0.9
SHAPES = ((64, 1), (1, 64))
SYNC = ["flushDiskType=SYNC_FLUSH"]
HEADING = f"{'':<20}{'redis k/s':>11}{'broker k/s':>11}{'ratio':>7}{'p50 ms':>9}{'p99 ms':>9}"


@contextmanager
def redis(cores: Cores) -> Iterator[Server | None]:
    """A Redis that syncs before each answer, on a Unix path of its own port; None without one."""
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        yield None
        return
    home, port = Path(tempfile.mkdtemp(prefix="cometmq-redis-")), 36_379
    log = home / "log"
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_ready(lambda: "Ready to accept" in log.read_text(), process, log)
        pin(process.pid, cores.server)
        yield Server("redis", port, process.pid)
    finally:
        end(process)
        shutil.rmtree(home, ignore_errors=True)


def redis_rate(
    server: Server, cores: Cores, connections: int, window: int, seconds: float
) -> float:
    """Messages a second of one round; the count is chosen by a short round before it."""
    command = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "--csv"]
    command += ["-P", str(window)]

    def round_of(count: int) -> float:
        work = [*command, "-n", str(count), "XADD", "bench", "*", "body", "x" * BODY]
        pin = partial(os.sched_setaffinity, 0, {cores.generator}) if cores.generator >= 0 else None
        done = subprocess.run(work, capture_output=True, text=True, timeout=120, preexec_fn=pin)
        if done.returncode:
            sys.exit(f"bench: redis-benchmark failed: {done.stderr.strip()}")
        return float(list(csv.reader(done.stdout.splitlines()))[-1][1])

    return round_of(int(round_of(20_000) * seconds))


def rows(cores: Cores, in_c: bool, seconds: float) -> Iterator[str]:
    with redis(cores) as peer, broker(cores, None, SYNC) as server:
        for connections, window in SHAPES:
            peers, ours = [], []
            for _ in range(ROUNDS):
                if peer:
                    peers.append(redis_rate(peer, cores, connections, window, seconds))
                options = {"connections": connections, "window": window, "body": BODY, "keys": 1}
                raw = measure(server, cores, in_c, **options, topic="bench", seconds=seconds)
                ours.append((raw["messages"] / raw["wall_s"], raw["p50_ms"], raw["p99_ms"]))
            rate, p50, p99 = (median(values) for values in zip(*ours, strict=True))
            ratio = rate / median(peers) if peers else 0.0
            yield row(
                f"send {BODY} B {connections}x{window}", median(peers or [0]), rate, ratio, p50, p99
            )


def row(name: str, peer: float, rate: float, ratio: float, p50: float, p99: float) -> str:
    words = "" if not peer else "mark 0.9 met" if ratio >= MARK else "mark 0.9 MISSED"
    note = words if name.endswith("64x1") else ""
    figures = f"{peer / 1e3:>11.1f}{rate / 1e3:>11.1f}{ratio:>7.2f}{p50:>9.2f}{p99:>9.2f}"
    return f"{name:<20}{figures}  {note}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a round")
    args = parser.parse_args()
    why_python, cores = compiled(), Cores.pick()
    lines = [machine(cores, why_python), "", HEADING]
    print("\n".join(lines), flush=True)
    started = time.monotonic()
    for line in rows(cores, not why_python, args.seconds):
        print(line, flush=True)
        lines.append(line)
    if not shutil.which("redis-server"):
        lines.append("no redis-server on PATH: nothing to compare with")
        print(lines[-1])
    print(f"({time.monotonic() - started:.0f} s)")
    save(args.save, "\n".join(lines))


if __name__ == "__main__":
    main()
