"""Settings of what tells monitoring about a role: metrics for Prometheus, and its health.

Keys that RocketMQ has keep its names and defaults, save the host: nothing listens beyond this
machine unless asked. Refuses to know sockets. Java: the metrics keys of BrokerConfig.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cometmq.settings.keys import at_least, between, check, one_of, setting

DISABLE, PROM = "DISABLE", "PROM"
_is_label = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*").fullmatch
_TAKEN = """
    broker_cluster broker_id broker_name cluster consume_mode consumer_group event instance
    is_retry is_system job language le message_type metric node_id node_type protocol_type
    queue_id role storage_medium storage_type topic version
"""
TAKEN_LABELS = frozenset(_TAKEN.split())
"""Names that a label of `metricsLabel` may not have: our metrics and Prometheus use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings:
    """Whether a role answers HTTP requests about itself, where, and with which labels."""

    metrics_exporter_type: str = setting(
        DISABLE, note="PROM: answer /metrics, which needs the extra `metrics`; else DISABLE"
    )
    metrics_prom_exporter_host: str = setting(
        "", note="address to listen on for /metrics, /live and /ready; empty: 127.0.0.1"
    )
    metrics_prom_exporter_port: int = setting(
        5557, note="port for /metrics, /live and /ready; 0 takes any free one"
    )
    metrics_label: str = setting(
        "", note="labels of every series, as in zone:eu,rack:7; no secrets: all who read see them"
    )
    metrics_otel_cardinality_limit: int = setting(
        50_000, note="series of one metric; further ones are left out, counted and logged"
    )
    health_enable: bool = setting(default=False, note="answer /live and /ready; PROM does so too")

    def __post_init__(self) -> None:
        """Check every value."""
        one_of(self, "metrics_exporter_type", DISABLE, PROM)
        between(self, 0, 65_535, "metrics_prom_exporter_port")
        at_least(self, 1, "metrics_otel_cardinality_limit")
        pairs = [pair.split(":") for pair in self.metrics_label.split(",") if pair.strip()]
        are_pairs = all(len(pair) == 2 and _is_label(pair[0].strip()) for pair in pairs)
        check(self, "metrics_label", are_pairs, "pairs of a name and a value as in zone:eu,rack:7")
        are_free = all(pair[0].strip() not in TAKEN_LABELS for pair in pairs)
        check(self, "metrics_label", are_free, "labels that no metric of ours has already")

    @property
    def serves(self) -> bool:
        """Whether the role listens for such requests at all."""
        return self.health_enable or self.exports

    @property
    def exports(self) -> bool:
        """Whether it answers requests for metrics."""
        return self.metrics_exporter_type == PROM

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.metrics_prom_exporter_host.strip() or "127.0.0.1"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of `metricsLabel`."""
        pairs = (pair.partition(":") for pair in self.metrics_label.split(",") if pair.strip())
        return {name.strip(): value.strip() for name, _, value in pairs}
