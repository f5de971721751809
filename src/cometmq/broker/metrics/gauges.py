"""What is read when somebody asks: the store, its disk, and the sizes of the broker's tables.

Owns the registration only. Refuses to keep anything: each value is asked of its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cometmq.broker.metrics import metric_definitions as catalog

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.pulls.held_requests import HeldRequests
    from cometmq.metrics.registry import MetricsRegistry
    from cometmq.model.replication import SlaveStatus
    from cometmq.net.server import RemotingServer
    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.message_store import MessageStore


def register_store(registry: MetricsRegistry, store: MessageStore, files: Files) -> None:
    """Register what the store and its disk tell of themselves."""
    times, log_directory = store.put_times, store.commit_log_directory
    registry.histogram(catalog.PUT_SECONDS, times.histogram)
    registry.callback(catalog.PUT_LONGEST_S, lambda: times.longest_s)
    registry.callback(catalog.PUTS_FAILED, lambda: times.failed)
    registry.callback(catalog.FLUSH_BEHIND, lambda: store.unflushed_bytes)
    registry.callback(catalog.DISPATCH_BEHIND, lambda: store.lookup.behind_bytes)
    registry.callback(catalog.LOG_MIN_OFFSET, lambda: store.min_phy_offset)
    registry.callback(catalog.LOG_MAX_OFFSET, lambda: store.max_phy_offset)
    registry.callback(catalog.DISK_TOTAL, lambda: files.space(log_directory).total)
    registry.callback(catalog.DISK_USED_RATIO, lambda: _used_ratio(files, log_directory))


def register_tables(
    registry: MetricsRegistry, topics: Topics, groups: ConsumerGroups, held: HeldRequests
) -> None:
    """Register how many topics, groups and held requests there are."""
    registry.callback(catalog.TOPICS, lambda: len(topics.table))
    registry.callback(catalog.GROUPS, lambda: len(groups.table))
    registry.callback(catalog.HELD_REQUESTS, lambda: held.count)


def register_sockets(registry: MetricsRegistry, server: RemotingServer) -> None:
    """Register how many connections are open and how many requests wait."""
    registry.callback(catalog.CONNECTIONS, lambda: len(server.protocols))
    registry.callback(catalog.REQUESTS_IN_FLIGHT, lambda: server.in_flight)


class ReplicationFigures(Protocol):
    """What a broker knows of the copies of its log: of its own role's side only."""

    @property
    def timeouts(self) -> int:
        """Writes that slaves did not acknowledge in time."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the newest promotion that this broker is part of."""
        ...

    def slaves(self) -> tuple[SlaveStatus, ...]:
        """The connected slaves of a master."""
        ...

    def is_following(self) -> bool:
        """Whether a slave copies its master now."""
        ...


def register_replication(registry: MetricsRegistry, figures: ReplicationFigures) -> None:
    """Register how far slaves are, or whether this one follows."""
    slaves = figures.slaves
    registry.callback(catalog.SLAVES, lambda: len(slaves()))
    registry.callback(
        catalog.SLAVE_LAG_BYTES, lambda: max((each.lag_bytes for each in slaves()), default=0)
    )
    registry.callback(
        catalog.SLAVE_LAG_MS, lambda: max((each.lag_ms for each in slaves()), default=0)
    )
    registry.callback(catalog.SLAVE_TIMEOUTS, lambda: figures.timeouts)
    registry.callback(catalog.IS_FOLLOWING, lambda: int(figures.is_following()))
    registry.callback(catalog.EPOCH, lambda: figures.epoch)


def _used_ratio(files: Files, directory: Path) -> float:
    space = files.space(directory)
    return space.used / space.total if space.total else 0.0
