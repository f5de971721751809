"""What a name server shows monitoring: who is registered, and how many topics it knows.

Apache's name server exports nothing, so all names are ours. Refuses to keep anything: each value is
asked of its owner. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.metrics.registry import Metric, MetricKind, Sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cometmq.namesrv.route_registry import RouteRegistry
    from cometmq.net.server import RemotingServer

_GAUGE = MetricKind.GAUGE

BROKER = Metric(
    "cometmq_registered_broker",
    _GAUGE,
    "{broker}",
    "1 for each broker that is registered.",
    ("broker_cluster", "broker_name", "broker_id"),
)
TOPICS = Metric("cometmq_registered_topics", _GAUGE, "{topic}", "Topics that routes are known of.")
CONNECTIONS = Metric("cometmq_connections", _GAUGE, "{connection}", "Open connections.")
IN_FLIGHT = Metric(
    "cometmq_in_flight_requests", _GAUGE, "{request}", "Requests that wait for their answer."
)
METRICS = (BROKER, TOPICS, CONNECTIONS, IN_FLIGHT)


class NameServerFigures:
    """Reads everything of one name server. Belongs to its loop."""

    def __init__(self, routes: RouteRegistry, server: RemotingServer) -> None:
        self._routes = routes
        self._server = server

    async def each(self, _series_max: int) -> AsyncIterator[Sample]:
        """Read every series; brokers are bounded by the registry."""
        yield Sample(CONNECTIONS, (), len(self._server.protocols))
        yield Sample(IN_FLIGHT, (), self._server.in_flight)
        yield Sample(TOPICS, (), self._routes.topic_count)
        for name, broker in self._routes.cluster_info().broker_addr_table.items():
            for broker_id in broker.broker_addrs:
                yield Sample(BROKER, (broker.cluster, name, str(broker_id)), 1)
