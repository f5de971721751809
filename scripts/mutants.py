# ruff: noqa: INP001
"""Change one thing in the code at a time and see whether a test notices (mutmut).

    python scripts/mutants.py PART [PATTERN]... [--sample N --seed S]

A part is some of the code with the tests that judge it (PARTS). A pattern such as
`*/process_queue.py` restricts it to some files, and `--sample` to that many mutants of them, drawn
at random: the first N of an order that the seed (0 where none is given) determines. What no test
noticed is kept with its change in tests/mutants/PART.json, where a reason can be given why that is
right; a reason stays with its change from run to run. The words of messages are not counted.
Files that were not part of the run keep their figures. The mutants of a run stay in .mutants/PART,
so a second run starts where the first one was stopped, and tries again what survived. Of all
mutants, mutmut runs the tests that call the function; programs that a test starts run the code as
it is then. Of a sample, one process runs all tests of the part (mutant_sample.py): for a large part
that is much less work. The tests marked `powercut` do not run: they take longest, and the other
power cuts are like them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from mutant_sample import MutatedSource, SampleRun, draw  # noqa: E402

from oracle_runs import commit_under_test  # noqa: E402

RESULTS = ROOT / "tests" / "mutants"

PARTS = {
    "rules": (["src/cometmq/rules"], ["tests/rules"]),
    "store": (["src/cometmq/store"], ["tests/store"]),
    "files": (["src/cometmq/runtime"], ["tests/runtime", "tests/crash"]),
    "locks": (
        [
            "src/cometmq/client/consumer/queue_locks.py",
            "src/cometmq/client/handling/lock_recovery.py",
            "src/cometmq/client/handling/orderly.py",
            "src/cometmq/broker/groups/queue_locks.py",
        ],
        [
            "tests/client/consumer/test_lock_owners.py",
            "tests/client/consumer/test_lock_waits.py",
            "tests/client/consumer/test_queue_locks.py",
            "tests/client/consumer/test_stopped_process.py",
            "tests/client/handling/test_lock_recovery.py",
            "tests/client/handling/test_orderly.py",
            "tests/broker/groups/test_lock_requests.py",
            "tests/broker/groups/test_queue_locks.py",
        ],
    ),
}
KILLED, SURVIVED, UNTESTED = {1, 3}, {0}, {5, 33}
ALIVE = SURVIVED | UNTESTED
"""Exit codes that mutmut keeps; every other one means that the tests did not end."""

CONFIG = """\
[mutmut]
source_paths=
    {paths}
only_mutate=
    {patterns}
pytest_add_cli_args_test_selection=
    {tests}
pytest_add_cli_args=
    --hypothesis-profile=mutants
    -m
    not slow and not interop and not soak and not powercut
also_copy=
    src
    tests
    bench
    pyproject.toml
timeout_multiplier=10
"""


def prepare(part: str, patterns: list[str]) -> Path:
    """Copy the sources to the part's folder and write mutmut's settings there."""
    paths, tests = PARTS[part]
    place = ROOT / ".mutants" / part
    place.mkdir(parents=True, exist_ok=True)
    for folder in ("src", "tests", "bench"):
        shutil.rmtree(place / folder, ignore_errors=True)
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    tests = [test for test in tests if (ROOT / test).exists()]
    chosen = {"paths": paths, "patterns": patterns or ["*"], "tests": tests}
    lists = {name: "\n    ".join(values) for name, values in chosen.items()}
    (place / "setup.cfg").write_text(CONFIG.format(**lists))
    forget_survivors(place)
    return place


def forget_survivors(place: Path) -> None:
    """Have what survived an earlier run tried again: there may be new tests."""
    for meta in place.rglob("*.meta"):
        known = json.loads(meta.read_text())
        codes = known["exit_code_by_key"]
        codes.update((mutant, None) for mutant, code in codes.items() if code in ALIVE)
        meta.write_text(json.dumps(known))


def results_of(place: Path, patterns: list[str]) -> list[tuple[str, dict[str, int | None]]]:
    """Each source with the exit codes of the tests by mutant; None: not tried."""
    found = []
    for meta in sorted((place / "mutants" / "src").rglob("*.meta")):
        source = str(meta.relative_to(place / "mutants")).removesuffix(".meta")
        if any(fnmatch(source, pattern) for pattern in patterns or ["*"]):
            found.append((source, json.loads(meta.read_text())["exit_code_by_key"]))
    return found


def change_of(source: str, mutant: str) -> list[str]:
    """The lines that a mutant removes and adds; in the folder of its part."""
    from mutmut.__main__ import get_diff_for_mutant  # reads the settings of the folder

    shown = get_diff_for_mutant(mutant, path=source)
    changed = [line.rstrip() for line in shown.splitlines() if re.match(r"[-+](?![-+])", line)]
    return [line[0] + " " + line[1:].strip() for line in changed]


def module_of(path: str) -> str:
    """`src/cometmq/a/b.py` as `cometmq.a.b`."""
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def in_text_only(change: list[str]) -> bool:
    """Whether a mutant changes only words: of an assertion, or of a sentence, which has spaces."""
    bare = [re.sub(r"(['\"]).*?\1|\bNone\b", "", line[1:]) for line in change]
    if len(bare) != 2 or bare[0] != bare[1]:
        return False
    before, after = (re.findall(r"(['\"])(.*?)\1", line) for line in change)
    changed = [old for (_, old), (_, new) in zip(before, after, strict=False) if old != new]
    return "assert" in "".join(change) or (bool(changed) and all(" " in old for old in changed))


def function_of(mutant: str) -> str:
    """`cometmq.a.b.xǁClassǁname__mutmut_3` as `cometmq.a.b.Class.name`."""
    module, _, name = mutant.rpartition("__mutmut_")[0].rpartition(".")
    return f"{module}.{name.removeprefix('x').strip('_').replace('ǁ', '.').strip('.')}"


def collect(
    place: Path, patterns: list[str]
) -> tuple[dict[str, dict[str, int]], dict[str, tuple[str, str]]]:
    """The figures of each file, and the mutants that no test noticed: source and how they live."""
    files: dict[str, dict[str, int]] = {}
    alive: dict[str, tuple[str, str]] = {}
    for source, codes in results_of(place, patterns):
        counts = defaultdict(int, mutants=len(codes))
        for mutant, code in codes.items():
            kind = "unfinished" if code is None else "killed" if code in KILLED else "hung"
            if code in ALIVE:
                kind = "survived" if code in SURVIVED else "untested"
                alive[mutant] = source, kind
            counts[kind] += 1
        if counts["unfinished"] < len(codes):
            files[source] = dict(counts)
    return files, alive


def survivors_of(
    place: Path, files: dict[str, dict[str, int]], alive: dict[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """The functions and changes of the mutants that live; those of words alone do not count."""
    found: list[dict[str, Any]] = []
    os.chdir(place)
    for mutant, (source, kind) in alive.items():
        function, change = function_of(mutant), change_of(source, mutant)
        if in_text_only(change):
            files[source][kind] -= 1
            files[source]["mutants"] -= 1
            continue
        module = module_of(source)
        name = f"{module}:{function.removeprefix(module + '.')}"
        found.append({"function": name, "change": change})
    return found


def record(
    part: str,
    files: dict[str, dict[str, int]],
    survivors: list[dict[str, Any]],
    run: dict[str, str | int],
) -> None:
    """Write what the run found over what is known of the same files.

    `run`: its commit, and the seed where a sample was drawn.
    """
    target = RESULTS / f"{part}.json"
    known = json.loads(target.read_text()) if target.exists() else {"files": {}, "survivors": []}
    reasons = {
        (old["function"], *old["change"]): old["reason"]
        for old in known["survivors"]
        if "reason" in old
    }
    for found in survivors:
        if reason := reasons.get((found["function"], *found["change"])):
            found["reason"] = reason
    modules = {module_of(path) for path in files}
    survivors += [
        old for old in known["survivors"] if old["function"].partition(":")[0] not in modules
    ]
    run["date"] = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    known["files"] |= {path: counts | run for path, counts in files.items()}
    known["files"] = dict(sorted(known["files"].items()))
    known["survivors"] = sorted(survivors, key=lambda one: (one["function"], one["change"]))
    RESULTS.mkdir(exist_ok=True)
    target.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    for path, counts in files.items():
        sys.stdout.write(f"{path} {counts}\n")


def run(place: Path) -> int:
    """Have mutmut try all mutants that were not tried yet; its exit code."""
    children = os.environ.get("CHILDREN", "2")
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", children]
    with (place / "progress").open("wb") as progress:
        shown = None if sys.stdout.isatty() else progress
        return subprocess.run(
            command, cwd=place, check=False, stdout=shown, stderr=shown
        ).returncode


def run_sample(
    place: Path, part: str, patterns: list[str], number: int, seed: int
) -> tuple[dict[str, dict[str, int]], list[dict[str, Any]]]:
    """Try a sample; the figures of each file of which one was drawn, and the survivors."""
    sources = {
        source: MutatedSource(ROOT, source)
        for source in sources_of(part)
        if any(fnmatch(source, pattern) for pattern in patterns or ["*"])
    }
    counted = (one for one in draw(sources, seed) if not in_text_only(one.change))
    drawn = list(islice(counted, number))
    judged = SampleRun(place, PARTS[part][1]).try_all(drawn)
    files: dict[str, dict[str, int]] = {}
    for source in sorted({mutant.source for mutant in drawn}):
        kinds = Counter(judged[mutant.key] for mutant in drawn if mutant.source == source)
        total = len(sources[source])
        files[source] = {"mutants": total, **kinds, "unfinished": total - kinds.total()}
    survivors = [
        {"function": mutant.function, "change": mutant.change}
        for mutant in drawn
        if judged[mutant.key] == "survived"
    ]
    return files, survivors


def sources_of(part: str) -> list[str]:
    """The files of a part."""
    found: list[str] = []
    for path in PARTS[part][0]:
        inside = sorted((ROOT / path).rglob("*.py"))
        found += [str(each.relative_to(ROOT)) for each in inside] or [path]
    return found


def main() -> None:
    """Run mutmut over a part and record what survived."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    asked = parser.parse_args()
    commit = commit_under_test()  # the one that is copied; later ones may come meanwhile
    place = prepare(asked.part, asked.patterns)
    facts: dict[str, str | int] = {"commit": commit}
    ended = 0
    if asked.sample:
        facts["seed"] = asked.seed
        files, found = run_sample(place, asked.part, asked.patterns, asked.sample, asked.seed)
    else:
        ended = run(place)
        files, alive = collect(place, asked.patterns)
        if not files:
            sys.exit(f"no mutant was tried: look at {place}/progress and at the patterns")
        found = survivors_of(place, files, alive)
    record(asked.part, files, found, facts)
    sys.exit(ended)


if __name__ == "__main__":
    main()
