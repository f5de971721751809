"""The circuit breakers of one consumer, one per topic: which topics have an outage.

Owns the breakers and what is logged of them; knows nothing of which messages are held back and
where. Invariant: a topic without any failure costs one lookup in a dictionary.
Java: nothing alike
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.rules.failures.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cometmq.model.message import MessageExt
    from cometmq.rules.failures.circuit_breaker import BreakerLimits

log = logging.getLogger(__name__)


class CircuitBreakers:
    """Breakers by topic. One loop owns it; threads only read `is_open` of a breaker."""

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self._breakers: dict[str, CircuitBreaker] = {}

    def breaker_of(self, topic: str) -> CircuitBreaker:
        """The breaker of a topic, the same each time."""
        found = self._breakers.get(topic)
        if found is None:
            found = self._breakers[topic] = CircuitBreaker(self._limits)
        return found

    @property
    def open_topics(self) -> list[str]:
        """The topics that have an outage now."""
        return sorted(topic for topic, breaker in self._breakers.items() if breaker.is_open)

    def running_info(self) -> dict[str, str]:
        """What operators should see: nothing when all is well."""
        return {"OUTAGES": " ".join(self.open_topics)} if self.open_topics else {}

    def log_opened(self, topic: str, reason: str) -> None:
        """Log that an outage began."""
        log.warning(
            "failures of %s occur across keys, the last one: %s; it counts as an outage: one "
            "message at a time is tried until one goes well",
            topic,
            reason,
        )

    def log_closed(self, topic: str) -> None:
        """Log that an outage is over."""
        log.warning("%s is handled again: the outage is over", topic)


def key_of(message: MessageExt) -> Hashable:
    """What counts as one key where handling knows none: the sharding key, else the message."""
    return message.sharding_key or (message.queue_id, message.queue_offset)
