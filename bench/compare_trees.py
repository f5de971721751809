"""CPU a message of two trees, before and after a change, measured in turns.

    python bench/compare_trees.py BEFORE AFTER [ROUNDS]

BEFORE and AFTER are checkouts, each with its own benches and sources; ROUNDS is 9 unless given.
ONLY and CLIENT_ONLY (environment) limit the rows of run.py and client.py, SECONDS_A (0.8) is the
measured time of a row and WARM_A (0.3) what comes before. Each round measures each row once on each
side, in alternating order; the echo, which is the same for both, is left out. Prints medians, the
median of the rounds' ratios and its quartiles.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

ROWS = ("await 64", "batches of 32", "64 threads", "1 thread")
SECONDS, WARM = os.environ.get("SECONDS_A", "0.8"), os.environ.get("WARM_A", "0.3")
DRIVER = """
import sys
sys.path.insert(0, "bench")
import run as bench
bench.ROUNDS, bench.EXTRA_ROUNDS = 1, 0
measure, nothing = bench.Bench.round, bench.Round(*[1.0] * 8, starved=False)
bench.Bench.round = lambda self, shape, server: (
    nothing if server.name == "echo" else measure(self, shape, server)
)
sys.argv = ["bench/run.py", "--json", *sys.argv[1:]]
bench.main()
"""

Row = tuple[float, float]


def output_of(root: Path, *arguments: str) -> str:
    """What a bench of a tree prints, run with the tree's own sources."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return done.stdout


def broker_rows(root: Path) -> dict[str, Row]:
    """CPU a message, us, and rate of each row of bench/run.py."""
    only = os.environ.get("ONLY", "")
    text = output_of(root, "-c", DRIVER, "--seconds", SECONDS, "--warm", WARM, "--only", only)
    lines = json.loads(text)["lines"]
    return {each["name"]: (each["broker"]["server_us"], each["broker"]["rate"]) for each in lines}


def client_rows(root: Path) -> dict[str, Row]:
    """The same of bench/client.py."""
    only = os.environ.get("CLIENT_ONLY", "")
    options = ("--rounds", "1", "--seconds", SECONDS, "--only", only)
    rows = {}
    for line in output_of(root, "bench/client.py", *options).splitlines():
        for name in ROWS:
            if line.startswith(name.ljust(15)):
                numbers = re.findall(r"[-+]?\d+\.\d+", line[26:])
                rows[f"client {name}"] = (float(numbers[4]), float(numbers[1]) * 1e3)
    return rows


def measure(before: Path, after: Path, rounds: int) -> dict[str, list[tuple[Row, Row]]]:
    """Pairs of before and after by row, one a round."""
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    begun = time.monotonic()
    for number in range(rounds):
        for rows_of in (broker_rows, client_rows):
            order = (before, after) if number % 2 else (after, before)
            found = {root: rows_of(root) for root in order}
            for name in found[before].keys() & found[after].keys():
                pairs.setdefault(name, []).append((found[before][name], found[after][name]))
        spent = time.monotonic() - begun
        print(f"round {number + 1} of {rounds} after {spent:.0f} s", file=sys.stderr, flush=True)
    return pairs


def main() -> None:
    """Measure and print the table."""
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    before, after = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 9
    print(f"{'us a message':<24}{'before':>9}{'after':>9}{'ratio':>8}{'quartiles':>16}")
    for name, pairs in sorted(measure(before, after, rounds).items()):
        ratios = [new[0] / old[0] for old, new in pairs]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        old, new = median(one[0][0] for one in pairs), median(one[1][0] for one in pairs)
        print(f"{name:<24}{old:>9.2f}{new:>9.2f}{median(ratios):>8.3f}{low:>9.3f}-{high:<6.3f}")


if __name__ == "__main__":
    main()
