"""Settings of a listening side: its bounds on frames, requests, connections and buffers.

Refuses to know who listens; broker and name server share it. Invariant: a value that exists is
usable, checked when it is made. Java: NettyServerConfig, NettySystemConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.settings.keys import at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """What a server bears from its clients before it slows them down or lets them go."""

    frame_bytes_max: int = setting(16 * 1024 * 1024, note="largest frame; the connection closes")
    connections_max: int = setting(16_384, note="connections at once; more are closed at once")
    connections_per_address_max: int = setting(
        8_192, note="connections at once from one address; more are closed at once"
    )
    unfinished_frame_bytes_max: int = setting(
        256 * 1024 * 1024,
        note="bytes of frames that are not whole yet, of all connections; the oldest of who holds "
        "most is closed",
    )
    in_flight_max: int = setting(16_384, note="unanswered requests a connection; then SYSTEM_BUSY")
    in_flight_total_max: int = setting(
        131_072, note="unanswered requests of all connections; then SYSTEM_BUSY"
    )
    in_flight_bytes_max: int = setting(
        256 * 1024 * 1024,
        note="bytes of requests of all connections that wait to be handled; then SYSTEM_BUSY",
    )
    calls_max: int = setting(1_024, note="unanswered requests of ours to one client")
    write_buffer_bytes_max: int = setting(
        4 * 1024 * 1024, note="unsent answers above which a connection is no longer read"
    )
    unsent_bytes_max: int = setting(
        128 * 1024 * 1024, note="unsent answers above which a connection is cut"
    )
    unsent_total_bytes_max: int = setting(
        1024 * 1024 * 1024, note="the same of all connections; who goes beyond it is cut"
    )
    idle_s: float = setting(
        120.0, java="serverChannelMaxIdleTimeSeconds", note="silence after which we close"
    )
    backlog: int = setting(1_024, java="serverSocketBacklog", note="connections not yet accepted")

    def __post_init__(self) -> None:
        """Check every value."""
        at_least(self, 1024, "frame_bytes_max", "write_buffer_bytes_max", "unsent_bytes_max")
        at_least(self, 1024, "unsent_total_bytes_max")
        at_least(self, 1024, "in_flight_bytes_max")
        at_least(self, self.frame_bytes_max, "unfinished_frame_bytes_max")
        at_least(self, 1, "connections_max", "connections_per_address_max")
        at_least(self, 1, "in_flight_max", "in_flight_total_max")
        at_least(self, 1, "calls_max", "backlog")
        at_least(self, 0.05, "idle_s")
