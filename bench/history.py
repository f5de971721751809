"""The runs of bench/run.py that were kept: bench/results/history.jsonl, an object a line."""

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

from servers import HERE, Cores

KEPT = HERE / "results" / "history.jsonl"


def processor() -> str:
    """The name of this machine's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    found = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return found or platform.processor()


def add(commit: str, cores: Cores, found: Mapping[str, tuple[float | None, float]]) -> str:
    """Keep a run; returns how it compares with the last one of the same machine and Python.

    `found` has the ratio to the echo and the broker's CPU in us a message for each shape whose
    rounds were not starved; without any the run is not kept.
    """
    if not found:
        return "all shapes were starved by other work: the run is not kept"
    new = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit,
        "machine": f"{processor()}, {'two cores' if cores.server >= 0 else 'not pinned'}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
        "shapes": {
            name: {"ratio": ratio and round(ratio, 3), "broker_us": round(us, 2)}
            for name, (ratio, us) in found.items()
        },
    }
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    alike = [
        one
        for one in map(json.loads, lines)
        if (one["machine"], one["python"]) == (new["machine"], new["python"])
    ]
    KEPT.write_text("\n".join([*lines, json.dumps(new)]) + "\n")
    return compared(alike[-1], new) if alike else "first run of this machine in the history"


def compared(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """Each shape's CPU a message beside that of an earlier run."""
    said = [f"beside the run of {old['date']}, commit {old['commit']}:"]
    for name, one in new["shapes"].items():
        if before := old["shapes"].get(name):
            times = one["broker_us"] / before["broker_us"]
            said.append(f"{name:<24}{times:>6.2f} x the CPU a message")
    return "\n".join(said)
