# ruff: noqa: INP001
"""Mutants of a part of the code drawn at random, each tried alone (used by mutants.py).

Each mutant that is drawn is written into a copy of the sources, and tests run there in a process of
their own until one fails: first those that mirror its file or folder, then all of its part, the
quick ones first. Nothing else in the copy is changed, so tests run at their usual speed, and the
programs that they start run the change, too.

A machine that has other work must not make a mutant look killed, so no test is stopped by the
clock: a run ends when it has used five times the processor time that the code as it is needs, or
when in 30 looks, one a second, it hardly ran or wanted to.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

SELECTION = "not slow and not interop and not soak and not powercut"
IDLE_LOOKS, IDLE_SHARE = 30, 0.05
CPU_TIMES = 5
CPU_LEAST_S = 120
RESULTS = "sample.json"
_TAKEN = re.compile(r"^([\d.]+)s call +(\S.*)$", re.MULTILINE)


class SampledMutant(NamedTuple):
    """One change of one file: its function, the lines removed and added, and the file with it."""

    source: str
    number: int
    function: str
    change: list[str]
    code: str

    @property
    def key(self) -> str:
        """What tells it from all others of one commit."""
        return "\n".join((f"{self.source} {self.number}", self.function, *self.change))


class MutatedSource:
    """A file and the changes that mutmut would make in its functions."""

    def __init__(self, root: Path, source: str) -> None:
        """Raises SyntaxError where the file is none of Python."""
        from mutmut.mutation.file_mutation import create_mutations

        self._source = source
        self._code = (root / source).read_text()
        self._module, mutations, _, _ = create_mutations(source, self._code)
        self._names = dict(_functions(self._module))
        # What is outside of functions would run before any test does.
        self._mutations = [
            one for one in mutations if one.contained_by_top_level_function in self._names
        ]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._mutations)

    def mutant(self, number: int) -> SampledMutant:
        """One of them, made now: to make all takes minutes."""
        one = self._mutations[number]
        module = self._module.deep_replace(one.original_node, one.mutated_node)
        code: str = module.code  # type: ignore[union-attr]  # a module stays one
        lines = self._code.splitlines(), code.splitlines()
        diff = list(difflib.unified_diff(*lines, lineterm="", n=0))[2:]
        change = [f"{line[0]} {line[1:].strip()}" for line in diff if line[0] in "-+"]
        module_name = self._source.removeprefix("src/").removesuffix(".py").replace("/", ".")
        function = f"{module_name}:{self._names[one.contained_by_top_level_function]}"
        return SampledMutant(self._source, number, function, change, code)


def _functions(module: cst.Module) -> Iterator[tuple[cst.CSTNode, str]]:
    """The functions of a module and the methods of its classes, by name."""
    import libcst as cst

    for statement in module.body:
        if isinstance(statement, cst.FunctionDef):
            yield statement, statement.name.value
        elif isinstance(statement, cst.ClassDef):
            for method in statement.body.body:
                if isinstance(method, cst.FunctionDef):
                    yield method, f"{statement.name.value}.{method.name.value}"


def draw(sources: dict[str, MutatedSource], seed: int) -> Iterator[SampledMutant]:
    """All mutants in an order that the seed determines."""
    drawn = [(name, number) for name in sorted(sources) for number in range(len(sources[name]))]
    Random(seed).shuffle(drawn)
    for name, number in drawn:
        yield sources[name].mutant(number)


class SampleRun:
    """The trial of a sample in one copy of the sources. What was tried is kept there."""

    def __init__(self, place: Path, tests: list[str]) -> None:
        """`place` holds a copy of src, tests, bench and pyproject.toml."""
        self._place = place
        self._tests = tests
        self._results = place / RESULTS
        self._cpu_limit_s = CPU_LEAST_S
        self._judged: dict[str, str] = {}
        if self._results.exists():
            known = json.loads(self._results.read_text())
            self._judged = {key: kind for key, kind in known.items() if kind != "survived"}

    def try_all(self, drawn: list[SampledMutant]) -> dict[str, str]:
        """Try those that are not known to be noticed; by key: killed, hung or survived."""
        self._run_clean()
        for number, mutant in enumerate(drawn, 1):
            if mutant.key not in self._judged:
                began = time.monotonic()
                kind, by = self._try(mutant)
                self._judged[mutant.key] = kind
                self._results.write_text(json.dumps(self._judged, indent=1, ensure_ascii=False))
                taken = time.monotonic() - began
                change = " ".join(mutant.change)
                _say(f"{number} {kind} {taken:.0f} s {mutant.function} {change} {by}")
        return self._judged

    def _run_clean(self) -> None:
        """Run the tests on the code as it is: they must pass; note how long each takes."""
        before = os.times()
        ended = self._pytest(*self._tests, "--durations=0", "--durations-min=0.0005", "-vv")
        after = os.times()
        if ended.returncode:
            sys.exit(f"the tests fail without a mutant:\n{ended.stdout[-3000:]}")
        used = sum(after[2:4]) - sum(before[2:4])
        self._cpu_limit_s = max(CPU_LEAST_S, int(CPU_TIMES * used))
        taken = {name: float(seconds) for seconds, name in _TAKEN.findall(ended.stdout)}
        # tests/conftest.py has the quick ones run first by this file.
        stats = json.dumps({"duration_by_test": taken})
        (self._place / "mutmut-stats.json").write_text(stats)
        _say(f"{len(taken)} tests take {used:.0f} s of processor time")

    def _try(self, mutant: SampledMutant) -> tuple[str, str]:
        path = self._place / mutant.source
        original = path.read_text()
        self._write(path, mutant.code)
        try:
            near = self._mirrors(mutant.source)
            ended = self._pytest("-x", *near) if near else None
            if ended is None or ended.returncode in (0, 5):  # 5: none is there
                ended = self._pytest("-x", *self._tests)
        finally:
            self._write(path, original)
        by = next((line for line in ended.stdout.splitlines() if line.startswith("FAILED")), "")
        if ended.returncode < 0:
            return "hung", by
        return ("killed", by) if ended.returncode else ("survived", "")

    def _write(self, path: Path, code: str) -> None:
        """Write a source; what Python keeps of it goes by whole seconds, so that is deleted."""
        path.write_text(code)
        for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            kept.unlink()

    def _mirrors(self, source: str) -> list[str]:
        """The tests beside the file's own, or its own, where they are not all of the part."""
        path = Path("tests") / Path(source).relative_to("src/cometmq")
        own = path.with_name(f"test_{path.name}")
        found = path.parent if str(path.parent) not in self._tests else own
        return [str(found)] if (self._place / found).exists() else []

    def _pytest(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the tests; a negative exit code: they did not end."""
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--timeout", "0"]
        command += ["--hypothesis-profile=mutants", "-p", "no:cacheprovider", "-m", SELECTION]
        environment = os.environ | {"PYTHONPATH": str(self._place / "src")}
        environment.pop("COMETMQ_WRITE", None)
        limit = self._cpu_limit_s
        output = self._place / "output"
        with output.open("wb") as file:
            started = subprocess.Popen(
                [*command, *more],
                cwd=self._place,
                env=environment,
                stdout=file,
                stderr=file,
                process_group=0,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            )
            code = _wait(started)
        text = output.read_text(errors="replace")
        return subprocess.CompletedProcess(command, code, text)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _wait(started: subprocess.Popen[bytes]) -> int:
    """Wait for a run to end, and end it when hardly anything happens in it any more."""
    busy_s: deque[float] = deque(maxlen=IDLE_LOOKS + 1)
    while True:
        try:
            return started.wait(1)
        except subprocess.TimeoutExpired:
            state, now_s = _activity(started.pid)
            if state == "T":  # somebody stopped it for a while
                busy_s.clear()
            busy_s.append(now_s)
        if len(busy_s) > IDLE_LOOKS and busy_s[-1] - busy_s[0] < IDLE_SHARE * IDLE_LOOKS:
            os.killpg(started.pid, signal.SIGKILL)
            return started.wait()


def _activity(pid: int) -> tuple[str, float]:
    """The state of a process, and how long it ran or wanted to run so far, seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except OSError:
        return "", 0.0
    ran = sum(int(each) for each in fields[11:15])  # its own, and that of programs that ended
    return fields[0], ran / os.sysconf("SC_CLK_TCK") + waited_ns / 1e9
