"""Samples the memory of all processes and the lag of the consumer groups once a second.

While the broker is down, samples have no lag. Bounded by `SAMPLES_MAX`: an hour.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING

from cometmq.demo.flights.processes.process_memory import process_tree_mib
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S = 1.0
SAMPLES_MAX = 3600


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """Memory and lag at one moment."""

    at_s: float
    """Monotonic clock."""
    memory_mib: float
    lag: dict[str, int] = field(default_factory=dict)
    """Messages stored and not yet committed, by group; empty while the broker is down."""


class Sampler:
    """Takes samples on its own thread while the context is open."""

    def __init__(self, lag: Callable[[], dict[str, int]]) -> None:
        self._lag = lag
        self._end = Event()
        self._thread = Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[ResourceSample] = []

    def __enter__(self) -> Sampler:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop; wait for a sample that is being taken."""
        self._end.set()
        self._thread.join(10)

    @property
    def memory_peak_mib(self) -> float:
        """The largest sum seen."""
        return max((sample.memory_mib for sample in self.samples), default=0.0)

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S) and len(self.samples) < SAMPLES_MAX:
            at_s, memory_mib = time.monotonic(), process_tree_mib()
            try:
                lag = self._lag()
            except CometError:
                lag = {}
            self.samples.append(ResourceSample(at_s, memory_mib, lag))
