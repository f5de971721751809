"""A running broker and name server as monitoring sees them, and the server that shows them.

Owns the labels of RocketMQ's exporter that tell roles apart. Refuses to measure. A broker whose
role changes is another object afterwards, so it is looked up with each request.
Java: BrokerMetricsManager (newAttributesBuilder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.metrics.registry import Metric, MetricKind, Sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from cometmq.broker.served_broker import ServedBroker
    from cometmq.cli.supervised_brokers import SupervisedBrokers
    from cometmq.monitoring.monitoring_server import MonitoredRole, MonitoringServer
    from cometmq.namesrv.app import NameServer
    from cometmq.settings.monitoring import MonitoringSettings
    from cometmq.settings.tls import TlsSettings


RESTARTS = Metric(
    "cometmq_broker_restarts_total",
    MetricKind.COUNTER,
    "{start}",
    "Starts of a broker process that had ended.",
    ("broker",),
)


class MonitoredBroker:
    """A broker of this process."""

    def __init__(self, served: ServedBroker) -> None:
        self._served = served

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that Apache's broker gives its series."""
        settings = self._served.broker.settings
        return {
            "node_type": "broker",
            "cluster": settings.broker_cluster_name,
            "node_id": settings.broker_name,
        }

    def problems(self) -> list[str]:
        """Why it does not do its work now."""
        return self._served.broker.health.problems()

    async def figures(self, series_max: int) -> AsyncIterator[Sample]:
        """Its samples; none while its store is not open, as when its role changes."""
        broker = self._served.broker
        if broker.health.is_serving:
            async for sample in broker.figures.each(series_max):
                yield sample


class MonitoredNameServer:
    """A name server of this process."""

    def __init__(self, name_server: NameServer) -> None:
        self._name_server = name_server

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels in the manner of a broker's; a name server belongs to no cluster."""
        return {"node_type": "namesrv", "node_id": self._name_server.address}

    def problems(self) -> list[str]:
        """Why it does not do its work now."""
        return self._name_server.problems()

    async def figures(self, series_max: int) -> AsyncIterator[Sample]:
        """Its samples."""
        async for sample in self._name_server.figures.each(series_max):
            yield sample


class MonitoredProcesses:
    """The brokers that this process starts, each in one of its own, which shows its figures."""

    def __init__(self, brokers: SupervisedBrokers) -> None:
        self._brokers = brokers

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels in the manner of a broker's."""
        return {"node_type": "brokers", "node_id": str(self._brokers.directory)}

    def problems(self) -> list[str]:
        """Which of them do not serve now."""
        return self._brokers.problems()

    async def figures(self, series_max: int) -> AsyncIterator[Sample]:
        """How often each was started again: at most `BROKERS_MAX` of them, whatever the limit."""
        del series_max
        for broker in self._brokers.brokers:
            yield Sample(RESTARTS, (broker.place.name,), broker.restarts)


class Monitoring:
    """The roles of this process that are shown, and the server that shows them, if it is asked for.

    Raises SettingsError where metrics are asked for and the extra `metrics` is not there.
    """

    def __init__(self, settings: MonitoringSettings, tls: TlsSettings) -> None:
        self._roles: list[MonitoredRole] = []
        self._server: MonitoringServer | None = None
        if settings.serves:  # most roles show nothing, and start sooner without its imports
            from cometmq.monitoring.monitoring_server import MonitoringServer

            self._server = MonitoringServer(settings, lambda: self._roles, tls)

    def show(self, role: MonitoredRole) -> None:
        """Show a role from now on, whether it is ready or not."""
        self._roles.append(role)

    async def start(self) -> None:
        """Listen, if that is asked for; raises SettingsError when the address cannot be had."""
        if self._server is not None:
            await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.stop()

    @property
    def facts(self) -> dict[str, str]:
        """What is printed of it when the roles have started."""
        return {"monitoring": self._server.url} if self._server is not None else {}
