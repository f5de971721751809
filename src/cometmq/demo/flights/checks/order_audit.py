"""The audit of the order: were the events of every aircraft handled in sequence, by any process?

Pure; does not know where observations come from.

What it proves. The observations of all processes arrive in the order of one shared clock. Without a
violation, for every sharding key, across all processes and hand-overs,
1. the first handling of message n+1 began after the first handling of message n had ended, with no
   number missing (and no two processes handled the key at once);
2. no event was handled before its predecessor in the same flight.
Without `before_repair`, too, no message of a key was handled while an earlier one that the handler
had refused was not yet handled.
If `unique` also equals the input's count, every message was handled (the numbers of a key have no
gap, and the keys are counted). An at-least-once system may handle a message again. That is no
violation but is counted: as `attempts` where the handler refused the message (raised) and did so
again, as `repaired` where it refused it no more, as `repeats` otherwise (a hand-over or a resent
batch).
The audit cannot see a handler call that was killed before it wrote its records.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.demo.flights.events import BEFORE, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.demo.flights.checks.observations import Observation

EXAMPLES_MAX = 5
_NEEDS = tuple(0 if before is None else 1 << before for before in BEFORE)


@dataclass(slots=True)
class AuditResult:
    """What the audit counted."""

    unique: int = 0
    """Different messages handled at least once."""
    refused: int = 0
    """Different messages that the handler refused."""
    repeats: int = 0
    attempts: int = 0
    repaired: int = 0
    """Different messages that were refused at first, and then handled."""
    before_repair: int = 0
    """Messages handled while one before them in their key was refused and not yet handled."""
    out_of_turn: int = 0
    overlaps: int = 0
    too_early: int = 0
    """Events handled before their predecessor."""
    hand_overs: int = 0
    """How often a queue went from one process to another."""
    by_kind: Counter[str] = field(default_factory=Counter)
    by_queue: Counter[int] = field(default_factory=Counter)
    by_process: Counter[int] = field(default_factory=Counter)
    """Different messages first handled by each process, by the index of its file."""
    latencies_ms: array[int] = field(default_factory=lambda: array("i"))
    """From the producer to the first handling, one for each different message."""
    begins_ns: array[int] = field(default_factory=lambda: array("q"))
    """When each of these handlings began, in the same order."""
    examples: list[str] = field(default_factory=list)
    """The first few violations, as sentences."""
    begin_ns: int = 0
    end_ns: int = 0

    @property
    def violations(self) -> int:
        """All violations of the order together."""
        return self.out_of_turn + self.overlaps + self.too_early

    @property
    def seconds(self) -> float:
        """From the first handling to the last."""
        return (self.end_ns - self.begin_ns) / 1e9


class _Key:
    """What is known of one sharding key."""

    __slots__ = ("end_ns", "last", "refused", "seen")

    def __init__(self) -> None:
        self.last = 0
        self.end_ns = 0
        self.refused: set[int] = set()
        """Numbers that were refused and not yet handled."""
        self.seen = bytearray(64)


class OrderAudit:
    """Takes observations in time order; read `result` at the end."""

    def __init__(self) -> None:
        self.result = AuditResult()
        self._keys: dict[bytes, _Key] = {}
        self._flights: dict[bytes, int] = {}
        self._owners: dict[int, int] = {}

    def feed(self, observations: Iterable[tuple[int, Observation]]) -> AuditResult:
        """Check these observations after all earlier ones; return the result so far."""
        result, keys = self.result, self._keys
        for process, one in observations:
            key = keys.get(one.sharding_key)
            if key is None:
                key = keys[one.sharding_key] = _Key()
            if not result.begin_ns:
                result.begin_ns = one.begin_ns
            end_ns = one.begin_ns + one.took_ns
            result.end_ns = max(result.end_ns, end_ns)
            if _is_new(key.seen, one.sequence):
                self._first_time(process, one, key)
            elif one.refused:
                result.attempts += 1
            elif one.sequence in key.refused:
                key.refused.remove(one.sequence)
                result.repaired += 1
            else:
                result.repeats += 1
            key.end_ns = max(key.end_ns, end_ns)
        return result

    def _first_time(self, process: int, one: Observation, key: _Key) -> None:
        result = self.result
        result.unique += 1
        if key.refused and min(key.refused) < one.sequence:
            result.before_repair += 1
        if one.refused:
            result.refused += 1
            key.refused.add(one.sequence)
        result.by_process[process] += 1
        result.by_queue[one.queue_id] += 1
        result.by_kind[KINDS[one.kind]] += 1
        result.latencies_ms.append(one.latency_ms)
        result.begins_ns.append(one.begin_ns)
        if one.sequence != key.last + 1:
            result.out_of_turn += 1
            self._example(one, f"came after number {key.last}")
        elif one.begin_ns < key.end_ns:
            result.overlaps += 1
            self._example(one, "began before the one before it had ended")
        key.last = max(key.last, one.sequence)
        known = self._flights.get(one.flight, 0)
        if known & _NEEDS[one.kind] != _NEEDS[one.kind]:
            result.too_early += 1
            self._example(one, f"came before {KINDS[BEFORE[one.kind] or 0]}")
        self._flights[one.flight] = known | 1 << one.kind
        if self._owners.setdefault(one.queue_id, process) != process:
            self._owners[one.queue_id] = process
            result.hand_overs += 1

    def _example(self, one: Observation, what: str) -> None:
        if len(self.result.examples) < EXAMPLES_MAX:
            key = one.sharding_key.rstrip(b"\0").decode()
            flight = one.flight.rstrip(b"\0").decode()
            self.result.examples.append(
                f"{key} number {one.sequence} ({KINDS[one.kind]} of {flight}) {what}"
            )


def _is_new(seen: bytearray, sequence: int) -> bool:
    """Mark a number as seen; return whether it was new."""
    if sequence >= len(seen):
        seen.extend(bytes(sequence + 64))
    if seen[sequence]:
        return False
    seen[sequence] = 1
    return True


def percentile(ordered: array[int] | list[int], share: float) -> int:
    """The value below which `share` of the sorted values lie; 0 when there is none."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
