"""Settings of a name server, without its sockets' bounds.

Holds only keys that the name server honours. Defaults are Apache RocketMQ's save `bindAddress`
(nothing listens beyond this machine unless asked).
Java: NamesrvConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.settings.keys import at_least, between, check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSettings:
    """Where a name server listens and how it treats brokers and topics."""

    bind_address: str = setting("127.0.0.1", note="address to listen on")
    listen_port: int = setting(9876, note="port to listen on; 0 takes any free one")
    kv_config_path: str = setting(
        "~/namesrv/kvConfig.json", note="JSON file of the KV configuration; empty: memory only"
    )
    scan_not_active_broker_interval_ms: int = setting(
        5_000, java="scanNotActiveBrokerInterval", note="time between searches for dead brokers"
    )
    order_message_enable: bool = setting(
        default=False, note="routes carry the order configuration", live=True
    )
    return_order_topic_config_to_broker: bool = setting(
        default=True, note="registering brokers get the order configuration", live=True
    )
    delete_topic_with_broker_registration: bool = setting(
        default=False,
        note="topics a broker no longer lists vanish with its registration",
        live=True,
    )
    enable_topic_list: bool = setting(
        default=True, note="answer the topics of a cluster", live=True
    )
    enable_all_topic_list: bool = setting(
        default=True, note="answer the list of all topics", live=True
    )
    need_wait_for_service: bool = setting(
        default=False, note="no routes right after the start", live=True
    )
    wait_seconds_for_service: int = setting(45, note="how long, when needWaitForService", live=True)
    support_acting_master: bool = setting(
        default=False, note="the lowest slave stands in for a lost master in routes", live=True
    )

    registered_topics_per_broker_max: int = setting(
        200_000, note="topics of one registration; then it is refused"
    )
    registered_topics_max: int = setting(
        500_000,
        note="topics of all brokers, each counted once a broker; a registration beyond is refused",
    )
    notify_min_broker_id_changed: bool = setting(
        default=False,
        note="notify the brokers of one name when the lowest broker id changes",
        live=True,
    )

    def __post_init__(self) -> None:
        """Check every value."""
        check(self, "bind_address", bool(self.bind_address.strip()), "an address, not empty")
        between(self, 0, 65_535, "listen_port")
        at_least(self, 1, "registered_topics_per_broker_max", "registered_topics_max")
        at_least(self, 10, "scan_not_active_broker_interval_ms")
        at_least(self, 0, "wait_seconds_for_service")
