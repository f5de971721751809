"""What a producer says of itself to its own program: how fast and how well it sends, by broker.

Java: none; ProducerStatsManager counts nothing of this.
"""

from __future__ import annotations

from typing import NamedTuple


class BrokerSends(NamedTuple):
    """The sends of a producer to one broker. Rates are of the last minute, or since the start."""

    ok_per_second: float
    """Requests that were stored; a batch is one."""
    failed_per_second: float
    """Attempts that failed, those before a retry included."""
    latency_ms: float
    """Mean time of a request that was stored."""
    in_flight: int
    """Requests without an answer now."""
    avoided_s: float
    """How long `latency_fault` avoids the broker from now on; 0: it does not."""
    is_reachable: bool
    """False: `detect_faults` found it unreachable, and probes it."""


class ProducerStats(NamedTuple):
    """A producer at one moment."""

    brokers: dict[str, BrokerSends]
    """By broker name, those to which it has sent."""
    unrouted_per_second: float
    """Attempts that found no broker to send to."""
    pending: int
    """Calls of `send_async` that have not ended."""

    @property
    def ok_per_second(self) -> float:
        """Requests to all brokers that were stored, a second."""
        return sum(one.ok_per_second for one in self.brokers.values())

    @property
    def failed_per_second(self) -> float:
        """Attempts that failed, a second."""
        return self.unrouted_per_second + sum(
            one.failed_per_second for one in self.brokers.values()
        )

    @property
    def in_flight(self) -> int:
        """Requests to all brokers without an answer now."""
        return sum(one.in_flight for one in self.brokers.values())

    @property
    def avoided(self) -> list[str]:
        """The brokers that are avoided now."""
        return [name for name, one in self.brokers.items() if one.avoided_s or not one.is_reachable]
