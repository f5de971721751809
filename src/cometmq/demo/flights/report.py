"""The report of the job: counts against expectations, speeds, latencies, memory.

Owns the fields of the report, its checks and its texts; does not measure or draw (`html_report`
does). Pure. Invariant: the job has passed exactly when every check has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CountCheck:
    """One count that must be what the input says."""

    name: str
    expected: int
    found: int
    at_least: bool = False
    """The count may be larger than expected."""

    @property
    def passed(self) -> bool:
        """Whether the count is right."""
        return self.found >= self.expected if self.at_least else self.found == self.expected

    def sentence(self) -> str:
        """The check and its count in one sentence, with the expected count if it is wrong."""
        wanted = f"at least {self.expected:,}" if self.at_least else f"{self.expected:,}"
        if self.passed:
            return f"{self.name}: {self.found:,}"
        return f"{self.name}: {self.found:,}, expected {wanted}"


@dataclass(frozen=True, slots=True)
class JobStage:
    """One step of the job: how many messages, and how long it took."""

    name: str
    messages: int
    """Different messages that came out."""
    repeats: int
    """Deliveries of a message beyond its first."""
    seconds: float

    @property
    def per_second(self) -> float:
        """Different messages a second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a producer's time stamp to a handler."""

    name: str
    p50_ms: int
    p99_ms: int
    count: int


@dataclass(slots=True)
class JobReport:
    """Everything that is printed, written as JSON and drawn."""

    messages: int
    checks: list[CountCheck] = field(default_factory=list)
    stages: list[JobStage] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """What happened during the run: kills, restarts, hand-overs, as sentences."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Counts that have no expectation, by name."""
    memory_peak_mib: float = 0.0
    seconds: float = 0.0
    page: str = ""
    """Path of the HTML page; empty before it is written."""

    def check(self, name: str, expected: int, found: int, *, at_least: bool = False) -> None:
        """Compare a count with what it must be."""
        self.checks.append(CountCheck(name, expected, found, at_least))

    @property
    def failed(self) -> list[CountCheck]:
        """The checks that do not hold."""
        return [check for check in self.checks if not check.passed]

    @property
    def passed(self) -> bool:
        """Whether every check holds (and there are some)."""
        return bool(self.checks) and not self.failed

    def as_json(self) -> dict[str, Any]:
        """The whole report in plain values."""
        return {
            "passed": self.passed,
            "messages": self.messages,
            "seconds": round(self.seconds, 1),
            "memory_peak_mib": round(self.memory_peak_mib, 1),
            "page": self.page,
            "checks": [_check_as_json(check) for check in self.checks],
            "stages": [_stage_as_json(stage) for stage in self.stages],
            "latencies": [_latency_as_json(latency) for latency in self.latencies],
            "events": self.events,
            **self.facts,
        }

    def lines(self) -> list[str]:
        """The report as text, a line for each fact."""
        return [
            *self.events,
            *(
                f"{'ok    ' if check.passed else 'WRONG '} {check.sentence()}"
                for check in self.checks
            ),
            *(
                f"{stage.name}: {stage.messages:,} messages in {stage.seconds:.1f} s, "
                f"{stage.per_second:,.0f} a second, {stage.repeats:,} repeats"
                for stage in self.stages
            ),
            *(
                f"{latency.name}: p50 {latency.p50_ms:,} ms, p99 {latency.p99_ms:,} ms "
                f"over {latency.count:,} messages"
                for latency in self.latencies
            ),
            f"memory of all processes at its peak: {self.memory_peak_mib:,.0f} MiB",
            f"whole job: {self.seconds:.0f} s",
        ]


def _check_as_json(check: CountCheck) -> dict[str, Any]:
    return {
        "name": check.name,
        "expected": check.expected,
        "at_least": check.at_least,
        "found": check.found,
        "passed": check.passed,
    }


def _stage_as_json(stage: JobStage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "messages": stage.messages,
        "repeats": stage.repeats,
        "seconds": round(stage.seconds, 2),
        "per_second": round(stage.per_second),
    }


def _latency_as_json(latency: Latency) -> dict[str, Any]:
    return {
        "name": latency.name,
        "p50_ms": latency.p50_ms,
        "p99_ms": latency.p99_ms,
        "count": latency.count,
    }
