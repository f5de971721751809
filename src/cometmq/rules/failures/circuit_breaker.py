"""A circuit breaker that tells a bad message (one key fails) from an outage (many keys fail).

Owns the last results of one topic, the pause, and the probe; knows nothing of what the calls do;
time is an argument, in seconds. Invariants: while it is open at most one
call, the probe, is under way that began after it opened; failures of one key alone never open it;
failures are excused for a bounded time, so that no message holds it open for ever.
States: closed (all may begin), open (nobody until `next_probe`), probing (one is under way).
Java: nothing alike
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.rules.failures.retry_policy import backoff_s

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When a consumer takes failures for an outage, and how it probes.

    It opens when at least `keys` different keys failed among the last `results` calls, and at least
    the share `share` of these calls failed; results older than `memory_s` do not count. It probes
    after `pause_s`, then after twice as long each time, up to `pause_most_s`. Failures cost no
    attempts while it is open, but for at most `outage_most_s`: then the messages may be at fault.
    """

    keys: int = 5
    share: float = 0.5
    results: int = 20
    memory_s: float = 60.0
    pause_s: float = 1.0
    pause_most_s: float = 30.0
    outage_most_s: float = 21_600.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("keys", "results"):
            _check(name, getattr(self, name), (int,), "a whole number")
        for name in ("share", "memory_s", "pause_s", "pause_most_s", "outage_most_s"):
            _check(name, getattr(self, name), (int, float), "a number")
        if not (2 <= self.keys <= self.results <= 10_000):
            raise SettingsError(
                f"the breaker has keys={self.keys} and results={self.results}: keys must be at "
                "least 2, results at least keys and at most 10000"
            )
        if not 0 < self.share <= 1:
            raise SettingsError(f"the breaker has share={self.share}: it must be within 0 and 1")
        if not (0 < self.pause_s <= self.pause_most_s and self.memory_s > 0):
            raise SettingsError(
                "the breaker's times must be more than 0, pause_most_s at least pause_s"
            )
        if not self.outage_most_s >= 0:
            raise SettingsError(
                f"the breaker has outage_most_s={self.outage_most_s}: it must be at least 0"
            )


def _check(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    if type(value) not in kinds:
        raise SettingsError(f"the breaker has {name}={value!r}: it must be {wanted}")


class CircuitBreaker:
    """The breaker of one topic. One owner: the client's loop."""

    __slots__ = (
        "_began_at",
        "_ended_at",
        "_is_probing",
        "_limits",
        "_openings",
        "_results",
        "next_probe_at",
    )

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self._results: deque[tuple[float, Hashable, bool]] = deque(maxlen=limits.results)
        self._openings = 0  # in a row, without a success in between
        self._is_probing = False
        self._began_at = 0.0
        self._ended_at = float("-inf")
        self.next_probe_at: float | None = None
        """When the next probe may begin; None while closed."""

    @property
    def is_open(self) -> bool:
        """Whether calls are held back: an outage."""
        return self.next_probe_at is not None

    def excuses_failures(self, now: float) -> bool:
        """Whether a failure now costs its message no attempt: an outage, not too long a one."""
        return self.is_open and now < self._began_at + self._limits.outage_most_s

    def may_call(self, now: float) -> bool:
        """Whether a call may begin now; while open, the one that may is the probe."""
        if self.next_probe_at is None:
            return True
        if self._is_probing or now < self.next_probe_at:
            return False
        self._is_probing = True
        return True

    def cancel_probe(self) -> None:
        """Note that a probe was not started after all, or had no result: another one may start."""
        self._is_probing = False

    def record_success(self, key: Hashable, now: float, *, is_probe: bool, calls: int = 1) -> bool:
        """Count so many calls that succeeded; whether this ended an outage.

        While open only the probe counts, not what had begun before.
        """
        assert calls >= 1, "a success is that of a call"
        if self.next_probe_at is None:
            assert not self._is_probing, "there is no probe while the breaker is closed"
            self._openings = 0
            self._results.extend(repeat((now, key, True), min(calls, self._limits.results)))
            return False
        if is_probe:
            self._results.clear()
            self.next_probe_at = None
            self._is_probing = False
            self._ended_at = now
        return is_probe

    def record_failure(self, key: Hashable, now: float, *, is_probe: bool) -> bool:
        """Count a call that failed; whether this began an outage."""
        if self.next_probe_at is not None:
            if is_probe:
                self._open(now)
            return False
        assert not self._is_probing, "there is no probe while the breaker is closed"
        self._results.append((now, key, False))
        if not self._is_outage(now):
            return False
        if now > self._ended_at + self._limits.memory_s:  # else it is the same one still
            self._began_at = now
        self._open(now)
        return True

    def _open(self, now: float) -> None:
        limits = self._limits
        self._openings += 1
        self._is_probing = False
        self.next_probe_at = now + backoff_s(self._openings, limits.pause_s, limits.pause_most_s)
        assert self.next_probe_at > now, "a probe comes after a pause"

    def _is_outage(self, now: float) -> bool:
        results, limits = self._results, self._limits
        assert results, "an outage is judged by results"
        while results[0][0] < now - limits.memory_s:
            results.popleft()
        failed = [key for _, key, is_done in results if not is_done]
        return len(set(failed)) >= limits.keys and len(failed) >= limits.share * len(results)
