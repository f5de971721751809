"""docs/performance.md from the results of versus.py: tables, marks, the spread and the commands."""

import json
from pathlib import Path
from statistics import median

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BAR, LIMIT_SHARE = 16, 0.95

MARKS = {
    ("sustained", "send 128 B 64x1", "Apache"): 1.6,
    ("sustained", "send 128 B 1x64", "Apache"): 2.3,
    ("sustained", "send 128 B 16x16", "Apache"): 2.3,
    ("bursts", "send 1024 B 64x1", "Apache"): 1.5,
    ("bursts", "send 1024 B 1x64", "Apache"): 2.0,
    ("bursts", "send 1024 B 16x16", "Apache"): 2.0,
    ("flushed", "send 128 B 64x1", "Apache"): 2.0,
    ("flushed", "send 128 B 16x16", "Apache"): 2.0,
    ("flushed", "send 128 B 64x1", "Redis always"): 0.9,
    ("flushed", "send 128 B 16x16", "Redis always"): 0.9,
    ("clients", "await 64", "Apache"): 2.5,
    ("clients", "64 threads", "Apache"): 1.0,
    ("clients", "4 x batches of 32", "Apache"): 2.0,
    ("clients", "backlog, one a call", "Apache"): 1.0,
    ("clients", "backlog, 32 a call", "Apache"): 1.5,
    ("pulls", "pull 32 of 128 B 8x1", "Apache"): 1.3,
    ("pulls", "pull 32 of 128 B 8x8", "Apache"): 1.1,
}
"""Least rate of ours beside another server's."""

TITLES = {
    "bursts": "Bursts: three seconds of sends after a rest",
    "sustained": "Sustained: sends without a pause",
    "flushed": "Sends that are answered once they are on the disk",
    "pulls": "Pulls of 32 messages",
    "clients": "Clients: ours on CometMQ, Java's on Apache's broker",
    "footprint": "Start and memory",
}
NOTES = {
    "bursts": "Redis flushes every second (`appendfsync everysec`), NATS every two minutes (its\n"
    "default), CometMQ and Apache every half second (`ASYNC_FLUSH`).",
    "sustained": "One round, with the key index on. Behind: how long the server worked on after\n"
    "the last answer. NATS and Redis have no such index.",
    "flushed": "`flushDiskType=SYNC_FLUSH`, `appendfsync always`, `sync_interval: always`.",
    "pulls": "Messages a second; a pull that finds less than 32 counts what it found.",
    "clients": "Client and broker on the same cores; CPU is the client's. `await` of 64 tasks is\n"
    "beside 64 threads of Java, an async handler beside a listener in threads. The last lines are\n"
    "times from the moment when a message should have been sent to its handler.",
    "footprint": "Several starts each. Broker and name server, with nothing to do; Apache's\n"
    "broker has a heap of 2 GiB here (8 by default), which it touches when it starts.",
}
INTRO = """\
# How fast

Written by `make versus` (`bench/versus.py`): one load generator and one machine, servers in turns,
the others stopped meanwhile. `64x1` is 64 connections, one request outstanding on each. Messages
are as a producer makes them, each with its own UNIQ_KEY, KEYS and TAGS. Figures are medians; behind
them the least and the most of the rounds. CPU is the server's, all threads, for a message. The
generator shares the cores, so ratios carry over to other machines and absolute figures do not.
Clients in Python are measured in [README](../README.md#how-fast).
"""


def write(results: Path) -> None:
    """Write the page from all parts that were measured."""
    told = json.loads(results.read_text())
    pieces = [INTRO]
    for part, title in TITLES.items():
        if part in told:
            lines = _footprint if part == "footprint" else _rates
            pieces.append(f"## {title}\n{NOTES[part]}\n\n{lines(part, told[part]['rows'])}")
            pieces.append(f"```\n{told[part]['about']}\n```\n")
    PAGE.write_text("\n".join(pieces))


def _rates(part: str, rows: list[dict]) -> str:
    lines = [
        "| | server | messages/s | | p50 / p99 ms | CPU µs | CometMQ is |",
        "|---|---|---|---|---|---|---|",
    ]
    by_work: dict[str, list[dict]] = {}
    for row in rows:
        by_work.setdefault(row["work"], []).append(row)
    for work, own in by_work.items():
        ours = next(row for row in own if row["server"] == "CometMQ")
        best = max(median(row["rates"]) for row in own if row["server"] != "echo")
        lines += [_rate(part, work if row is own[0] else "", row, ours, best) for row in own]
    return "\n".join(lines) + "\n"


def _rate(part: str, work: str, row: dict, ours: dict, best: float) -> str:
    rate = median(row["rates"])
    bar = "" if row["server"] == "echo" else "█" * max(1, round(BAR * rate / best))
    p50_ms, p99_ms = median(row["p50_ms"]), median(row["p99_ms"])
    times = f"{p50_ms:.2f} / {p99_ms:.2f}" if p50_ms else ""
    words = []
    if row is not ours and row["work"].startswith("100 a second"):
        late = [median(ours[each]) / median(row[each]) for each in ("p50_ms", "p99_ms")]
        words.append(f"p50 {late[0]:.2f} x, p99 {late[1]:.2f} x as late")
    elif row is not ours:
        ratio = median(ours["rates"]) / rate
        words.append(f"{ratio:.2f} x")
        if mark := MARKS.get((part, row["work"], row["server"])):
            words.append(f"mark {mark:g} {'met' if ratio >= mark else '**missed**'}")
    if median(row["generator_share"]) > LIMIT_SHARE:
        words.append("the generator was the limit")
    if part == "sustained":
        words.append(f"behind {row['behind_s']:.1f} s")
    cpu_us = median(row["cpu_us"])
    cpu = f"{cpu_us:.1f}" if cpu_us else ""  # it was not measured
    figures = f"{rate:,.0f} {_spread(row['rates'], ',.0f')}"
    return (
        f"| {work} | {row['server']} | {figures} | {bar} | {times} | {cpu} | {', '.join(words)} |"
    )


def _footprint(_part: str, rows: list[dict]) -> str:
    lines = ["| | server | | CometMQ is |", "|---|---|---|---|"]
    for work in dict.fromkeys(row["work"] for row in rows):
        own = [row for row in rows if row["work"] == work]
        ours = median(next(row for row in own if row["server"] == "CometMQ")["rates"])
        for row in own:
            value = median(row["rates"])
            ratio = "" if row["server"] == "CometMQ" else f"{ours / value:.2f} x"
            said = f"{value:,.2f} {_spread(row['rates'], ',.2f')}"
            lines.append(f"| {work} | {row['server']} | {said} | {ratio} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float], form: str) -> str:
    return f"({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
