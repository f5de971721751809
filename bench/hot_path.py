"""What the hot path of a send and of a pull costs in CPU, as a multiple of a bare echo's.

    python bench/hot_path.py            measure
    python bench/hot_path.py --check    exit 1 where a row costs a third more than the baseline
    python bench/hot_path.py --write    make this run the baseline, bench/results/hot-path.json

Broker and echo run on one event loop, asyncio's own, with the clients' ends of real sockets in the
same process. The requests of an iteration are written first, to the one and then to the other, and
only the loop's CPU is measured, so other work on the machine changes little; of the iterations the
first quartile counts. The key index is off: it works behind the answers (bench/index.py). The
baseline is the median of five, one with the hot loops in C and one with those in Python
(COMETMQ_NATIVE=0): which of them runs decides what is compared. A row over its bound is measured
again, up to three times, then all rows in a new process, up to twice: some processes are slower
than others for all their life.
"""

import argparse
import asyncio
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cometmq import native
from cometmq.broker.app import Broker
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from echo import Echo
from loop_cost import FILLED, QUEUES, SHAPES, Client
from run import commit
from servers import HERE

ROWS = ("send keys 64x1", "send 16x16", "pull 32 8x1")
BASELINE = HERE / "results" / "hot-path.json"
LOSS = 4 / 3
FORM = "python" if native.c is None else "c"
ITERATIONS, TRIES, BASELINE_TRIES, PROCESSES = 150, 3, 5, 3


async def ratio(broker: Client, echo: Client, row: str) -> float:
    """The broker's CPU for the requests of a row, to the echo's for the same requests."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ITERATIONS):
        for one, times in zip((broker, echo), spent, strict=True):
            times.append(await one.iterate(SHAPES[row]))
    own, bare = (sorted(times)[ITERATIONS // 4] for times in spent)
    return own / bare


async def measured(bounds: dict[str, float]) -> dict[str, float]:
    """The ratio of each row, measured again where it is over its bound; without bounds a median."""
    root = Path(tempfile.mkdtemp(prefix="cometmq-bench-"))
    settings = BrokerSettings(store_path_root_dir=str(root), broker_name="a", listen_port=0)
    broker = Broker.open(settings, StoreSettings(message_index_enable=False))
    await broker.start()
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    try:
        broker.state.topics.ensure("bench128", QUEUES)
        ends = Client(broker.port), Client(server.sockets[0].getsockname()[1])
        for end in ends:
            await end.connect(64)
        while broker.store.max_offset("bench128", 0) < FILLED:
            await ends[0].iterate(SHAPES["send 16x16"])
        found = {}
        for row in ROWS:
            await ratio(*ends, row)  # headers are learned
            tries = [await ratio(*ends, row) for _ in range(1 if bounds else BASELINE_TRIES)]
            while bounds and len(tries) < TRIES and min(tries) > bounds[row]:
                tries.append(await ratio(*ends, row))
            found[row] = min(tries) if bounds else median(tries)
        return found
    finally:
        server.close()
        await broker.stop()
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 where a row lost a third")
    parser.add_argument("--write", action="store_true", help="make this run the baseline")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="another file to check by")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="tries of a check")
    args = parser.parse_args()
    known: dict[str, float] = {}
    if not args.write:
        known = json.loads(args.baseline.read_text())[FORM]["ratios"]
    bounds = {row: known[row] * LOSS for row in known}
    found = asyncio.run(measured(bounds))
    for row, value in found.items():
        beside = f"  baseline {known[row]:.2f}, bound {bounds[row]:.2f}" if row in known else ""
        print(f"{row:<16}{value:>7.2f} x the echo's CPU{beside}")
    if args.write:
        about = {
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "commit": commit(),
            "python": platform.python_version(),
            "ratios": {row: round(value, 2) for row, value in found.items()},
        }
        others = json.loads(args.baseline.read_text()) if args.baseline.exists() else {}
        args.baseline.write_text(json.dumps(others | {FORM: about}, indent=1) + "\n")
    lost = [row for row in found if row in bounds and found[row] > bounds[row]]
    if args.check and lost and args.processes > 1:
        again = ["--check", "--baseline", str(args.baseline), "--processes"]
        command = [sys.executable, __file__, *again, str(args.processes - 1)]
        sys.exit(subprocess.run(command).returncode)
    if args.check and lost:
        sys.exit(
            f"hot path: {', '.join(lost)} cost more than {LOSS:.2f} times the baseline of "
            f"{args.baseline.name}; find what made it dearer with bench/loop_cost.py, or write a "
            "new baseline and say in the commit why it costs more"
        )


if __name__ == "__main__":
    main()
