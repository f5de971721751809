"""How long the clusters of the test kit take to start, and to stop, in milliseconds.

`LocalCluster` starts a process; `InProcessCluster` runs on the loop that is there, with real
sockets and files. Each is started `--rounds` times, by turns, after
one start that is not counted. Beside them: a Python process that does nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from cometmq.testing import InProcessCluster, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

Times = tuple[float, float]
"""Milliseconds until it serves, and until it has stopped."""


def in_a_process() -> Times:
    cluster = LocalCluster()
    began = time.perf_counter()
    cluster.start()
    started = time.perf_counter()
    cluster.stop()
    return 1e3 * (started - began), 1e3 * (time.perf_counter() - started)


def on_the_loop() -> Times:
    async def run() -> Times:
        with tempfile.TemporaryDirectory() as store:
            began = time.perf_counter()
            async with InProcessCluster(store):
                started = time.perf_counter()
            return 1e3 * (started - began), 1e3 * (time.perf_counter() - started)

    return asyncio.run(run())


def bare_python() -> Times:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return 1e3 * (time.perf_counter() - began), 0.0


KINDS: dict[str, Callable[[], Times]] = {
    "python -c ''": bare_python,
    "LocalCluster": in_a_process,
    "InProcessCluster": on_the_loop,
}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20)
    rounds = options.parse_args().rounds
    taken: dict[str, list[Times]] = {name: [] for name in KINDS}
    for number in range(rounds + 1):
        for name, start in KINDS.items():
            times = start()
            if number:
                taken[name].append(times)
    print(
        f"{rounds} rounds, CPython {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'ms':18}{'start: least':>14}{'median':>10}{'most':>10}{'stop: median':>15}")
    for name, times in taken.items():
        starts = [start for start, _ in times]
        stop = statistics.median(stop for _, stop in times)
        print(
            f"{name:18}{min(starts):14.1f}{statistics.median(starts):10.1f}"
            f"{max(starts):10.1f}{stop:15.1f}"
        )


if __name__ == "__main__":
    main()
