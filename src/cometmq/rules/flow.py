"""When a queue has enough: the limits that make a pull wait.

Owns the comparison only; refuses to know who pulls and for how long to wait.
Java: the head of DefaultMQPushConsumerImpl.pullMessage
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Bounds of what one queue may hold in memory; `span` counts for concurrent handlers only."""

    count: int = 1000
    size_mib: int = 100
    span: int = 2000


def is_full(limits: FlowLimits, count: int, size_bytes: int, span: int, *, orderly: bool) -> bool:
    """Whether the next pull of the queue should wait."""
    return (
        count > limits.count
        or size_bytes > limits.size_mib * 1_048_576
        or (not orderly and span > limits.span)
    )
