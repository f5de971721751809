"""Hours at half of the top rate: do memory, latency, file handles and the key index stay level?

    python bench/endurance.py                   two hours
    python bench/endurance.py --minutes 10      shorter
    python bench/endurance.py --save endurance  also writes bench/results/endurance.txt

First the top rate is measured: sends of 128 B on 64 connections, each with its own UNIQ_KEY and
KEYS. Then they come at half of it, and once a minute the broker is looked at: the percentiles of
that minute, its own memory (RssAnon), its file handles, the bytes of the log that are not yet in
the key index, and the store on the disk. Files of the log go after an hour, as
`fileReservedTime=1` says, so that two hours need the disk of one. The verdict compares the second
quarter of the time with the last.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from growth import ANYWHERE, anonymous_mib, ask
from run import machine
from servers import Server, Shares, broker, compiled, save, until_idle

MINUTE_S, TOP_S, TOPS = 60.0, 5.0, 3
HOURS = ";".join(f"{hour:02}" for hour in range(24))
LEVEL = 1.15
"""How much more the last quarter may have than the second."""


@dataclass
class Minute:
    """What one minute was like."""

    at: float
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    mib: float
    files: int
    behind_bytes: int
    store_gib: float

    def line(self) -> str:
        return (
            f"{self.at / 60:>7.1f}{self.rate / 1e3:>8.1f}{self.p50_ms:>9.2f}{self.p99_ms:>9.2f}"
            f"{self.cpu_us:>8.2f}{self.mib:>9.1f}{self.files:>7}{self.behind_bytes:>12,}"
            f"{self.store_gib:>9.2f}"
        )


HEAD = (
    f"{'minute':>7}{'k/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>8}{'MiB':>9}{'files':>7}"
    f"{'not indexed':>12}{'GiB':>9}"
)


def runtime(server: Server) -> dict[str, str]:
    """What the broker says of itself (28)."""
    with BlockingChannel(f"127.0.0.1:{server.port}", 30) as channel:
        answer = channel.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return json.loads(answer.body)["table"]


def store_gib(server: Server) -> float:
    """What the files of the store that the broker has open take on the disk."""
    found = {}
    for handle in Path(f"/proc/{server.pid}/map_files").iterdir():
        if handle.exists() and "/store/" in str(handle.readlink()):
            stat = handle.stat()
            found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values()) / 2**30


def minutes(server: Server, rate: float, lasts_s: float) -> list[Minute]:
    """Send at the rate, and look at the broker at the end of each minute."""
    found, began = [], time.monotonic()
    while (at := time.monotonic() - began) < lasts_s:
        raw = ask(server, min(MINUTE_S, lasts_s - at), rate=round(rate))
        one = Minute(
            time.monotonic() - began,
            raw["requests"] / raw["wall_s"],
            raw["p50_ms"],
            raw["p99_ms"],
            raw["server_cpu_s"] / raw["requests"] * 1e6,
            anonymous_mib(server.pid),
            len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
            int(runtime(server)["dispatchBehindBytes"]),
            store_gib(server),
        )
        print(one.line(), flush=True)
        found.append(one)
    return found


def verdicts(found: Sequence[Minute]) -> list[str]:
    """Whether each figure of the last quarter is level with the second."""
    quarter = max(1, len(found) // 4)
    early, late = found[quarter : 2 * quarter] or found[:1], found[-quarter:]
    lines = []
    for name in ("p99_ms", "cpu_us", "mib", "files"):
        before, after = (median(getattr(one, name) for one in part) for part in (early, late))
        verdict = "level" if after <= before * LEVEL else "GROWS"
        lines.append(f"{name:<8}{before:>10.2f} to {after:.2f}: {after / before:.2f} x, {verdict}")
    most = max(one.behind_bytes for one in found)
    lines.append(f"never more than {most:,} bytes of the log not in the index at a minute's end")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--dir", type=Path, default=None, help="where the store goes; a disk")
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt, too")
    args = parser.parse_args()
    if why := compiled():
        parser.error(f"the generator is written in C, and there is {why}")
    shares = Shares()
    with broker(ANYWHERE, args.dir, ["fileReservedTime=1", "deleteWhen=" + HOURS]) as server:
        ask(server, 1.0)
        tops = [
            one["requests"] / one["wall_s"] for one in (ask(server, TOP_S) for _ in range(TOPS))
        ]
        until_idle(server, 60)
        top = median(tops)
        print(f"top rate {top:,.0f} sends a second\n{HEAD}", flush=True)
        found = minutes(server, top / 2, args.minutes * 60)
    if not found:
        sys.exit("endurance: give it some time, as --minutes 10")
    lines = [machine(ANYWHERE, None), f"shares     {shares.told()}"]
    lines += [f"sends      {top / 2:,.0f} a second, half of the top rate", "", HEAD]
    lines += [*(one.line() for one in found), "", *verdicts(found)]
    print("\n".join(lines[-len(verdicts(found)) :]))
    save(args.save, "\n".join(lines))


if __name__ == "__main__":
    main()
