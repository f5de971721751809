"""Settings of a broker, without its store and its sockets' bounds.

Holds only keys that the broker honours; `docs/operate/settings.md` is made from it. Defaults are
Apache RocketMQ's save `bindAddress`: nothing listens beyond this machine unless asked.
Java: BrokerConfig, BrokerIdentity, and the delay and pull keys of MessageStoreConfig.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cometmq.model.topic import NAME_PATTERN
from cometmq.settings.keys import at_least, between, check, one_of, setting

ASYNC_MASTER = "ASYNC_MASTER"
SYNC_MASTER = "SYNC_MASTER"
SLAVE = "SLAVE"
TRANSFER_BYTES_MAX = 4 * 1024 * 1024 - 12
"""As `wire.replication` bounds a transfer."""
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker is called, where it listens, and what it does for topics and clients."""

    broker_cluster_name: str = setting("DefaultCluster", note="cluster the broker belongs to")
    broker_name: str = setting("DEFAULT_BROKER", note="name of the broker within its cluster")
    broker_id: int = setting(0, note="0 for a master, from 1 on for a slave")
    broker_role: str = setting(
        ASYNC_MASTER,
        note="ASYNC_MASTER, SYNC_MASTER (a send waits for inSyncReplicas - 1 slaves) or SLAVE",
    )
    bind_address: str = setting("127.0.0.1", note="address to listen on")
    listen_port: int = setting(10911, note="port to listen on; 0 takes any free one")
    broker_ip1: str = setting(
        "", java="brokerIP1", note="address given to clients; empty: the one listened on"
    )
    broker_ip2: str = setting(
        "", java="brokerIP2", note="address given to slaves; empty: the one given to clients"
    )
    store_path_root_dir: str = setting("~/store", note="directory of the store")
    namesrv_addr: str = setting("", note="name servers, host:port;host:port", live=True)
    region_id: str = setting("DefaultRegion", note="sent to producers with each answer")
    broker_permission: int = setting(6, note="4 read, 2 write, 6 both", live=True)

    default_topic_queue_nums: int = setting(8, note="queues of the template topic TBW102")
    auto_create_topic_enable: bool = setting(
        default=True, note="the first send makes the topic", live=True
    )
    auto_create_subscription_group: bool = setting(
        default=True, note="first use makes the group", live=True
    )
    cluster_topic_enable: bool = setting(default=True, note="the cluster's own topic is usable")
    broker_topic_enable: bool = setting(default=True, note="the broker's own topic is usable")
    trace_topic_enable: bool = setting(default=False, note="make the topic for message traces")
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", note="its name")

    register_name_server_period_ms: int = setting(
        30_000,
        java="registerNameServerPeriod",
        note="time between registrations, 10 s to 60 s",
        live=True,
    )
    register_broker_timeout_ms: int = setting(
        24_000, java="registerBrokerTimeoutMills", note="wait for a name server's answer", live=True
    )
    force_register: bool = setting(
        default=True,
        note="each registration sends all; else a name server is asked first what it knows",
        live=True,
    )
    compressed_register: bool = setting(
        default=False,
        note="registrations travel compressed, without the order and unit marks of topics",
        live=True,
    )
    long_polling_enable: bool = setting(
        default=True, note="pulls at the end of a queue wait", live=True
    )
    short_polling_time_ms: int = setting(
        1_000,
        java="shortPollingTimeMills",
        note="how long they wait when long polling is off",
        live=True,
    )
    held_pulls_max: int = setting(100_000, note="pulls that wait for messages, at most", live=True)
    held_pulls_per_queue_max: int = setting(
        10_000, note="pulls that wait for messages of one queue, at most", live=True
    )
    message_delay_level: str = setting(
        DELAY_LEVELS, note="times of the delay levels, from 1; read at the start"
    )
    flush_delay_offset_interval_ms: int = setting(
        10_000, java="flushDelayOffsetInterval", note="time between writes of delayOffset.json"
    )
    flush_consumer_offset_interval_ms: int = setting(
        5_000, java="flushConsumerOffsetInterval", note="time between writes of consumerOffset.json"
    )
    reject_transaction_message: bool = setting(
        default=False, note="take no transactional messages", live=True
    )
    transaction_timeout_ms: int = setting(
        6_000,
        java="transactionTimeOut",
        note="age at which a half message is asked about",
        live=True,
    )
    recall_message_enable: bool = setting(
        default=False, note="let producers take back messages at a time of their own", live=True
    )
    allow_recall_when_broker_not_writeable: bool = setting(
        default=True, note="let them also while brokerPermission forbids sends", live=True
    )
    transaction_check_interval_ms: int = setting(
        30_000, java="transactionCheckInterval", note="time between rounds of asking", live=True
    )
    transaction_check_max: int = setting(
        15, note="how often a producer is asked before its half message is discarded", live=True
    )
    store_reply_message_enable: bool = setting(
        default=True, note="keep pushed replies in the reply topic as well", live=True
    )
    channel_expired_timeout_ms: int = setting(
        120_000,
        java="channelExpiredTimeout",
        note="silence after which a client is forgotten",
        live=True,
    )
    use_server_side_reset_offset: bool = setting(
        default=True,
        note="a reset is the broker's; false: connected consumers are asked",
        live=True,
    )
    queue_lock_expire_ms: int = setting(
        60_000, note="life of a queue lock that is not renewed", live=True
    )
    dead_letter_deduplicate: bool = setting(
        default=False, note="a message becomes a group's dead letter once; standalone: true"
    )
    enable_property_filter: bool = setting(
        default=False, note="consumers may filter by SQL92; standalone: true", live=True
    )
    filter_support_retry: bool = setting(
        default=False,
        note="a retry topic's SQL92 subscription uses the real topic's filter",
        live=True,
    )
    filter_data_clean_time_span_ms: int = setting(
        86_400_000, java="filterDataCleanTimeSpan", note="how long unused filters are remembered"
    )
    max_error_rate_of_bloom_filter: int = setting(
        20, note="shape of the data kept for Apache brokers beside each filter, percent"
    )
    expect_consumer_num_use_filter: int = setting(32, note="likewise: groups per topic")
    enable_mixed_message_type: bool = setting(
        default=False, note="topics may be made for messages of any type"
    )
    lite_pull_message_enable: bool = setting(
        default=True, note="lite pull consumers may read", live=True
    )
    notify_consumer_ids_changed_enable: bool = setting(
        default=True, note="tell a group's members when it grows or shrinks", live=True
    )
    reject_unequal_subscriptions: bool = setting(
        default=False,
        note="refuse a member that wants other things than its group's members; else only warn",
        live=True,
    )

    ha_listen_port: int = setting(0, note="port of a master for its slaves; 0: listenPort + 1")
    ha_master_address: str = setting(
        "", note="where a slave finds its master's haListenPort; empty: name servers say it"
    )
    in_sync_replicas: int = setting(
        1, note="copies of a message, the master's included, that a SYNC_MASTER waits for"
    )
    slave_timeout_ms: int = setting(
        3_000, java="slaveTimeout", note="wait for slaves before FLUSH_SLAVE_TIMEOUT"
    )
    ha_transfer_batch_bytes: int = setting(
        32_768, java="haTransferBatchSize", note="bytes of the log sent to a slave at once"
    )
    ha_send_heartbeat_interval_ms: int = setting(
        5_000, java="haSendHeartbeatInterval", note="time between signs of life of both"
    )
    ha_housekeeping_interval_ms: int = setting(
        20_000, java="haHousekeepingInterval", note="silence after which the connection is closed"
    )
    ha_max_gap_not_in_sync_bytes: int = setting(
        256 * 1024 * 1024,
        java="haMaxGapNotInSync",
        note="bytes that a slave lacks above which it is shown as not in sync",
    )
    slave_read_enable: bool = setting(
        default=False,
        note="send readers far behind to the broker id whichBrokerWhenConsumeSlowly of their group",
    )
    ha_flow_control_enable: bool = setting(default=False, note="send each slave so much at most:")
    max_ha_transfer_bytes_per_second: int = setting(
        100 * 1024 * 1024, java="maxHaTransferByteInSecond", note="bytes a second, for one slave"
    )

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("broker_cluster_name", "broker_name"):  # each is a topic as well
            is_name = re.fullmatch(NAME_PATTERN, getattr(self, name)) is not None
            check(self, name, is_name, "a name of the characters % | - _ 0-9 A-Z a-z")
        check(self, "bind_address", bool(self.bind_address.strip()), "an address, not empty")
        are_addresses = all(_is_address(addr) for addr in self.namesrv_addrs)
        check(self, "namesrv_addr", are_addresses, "addresses as in host:9876;other:9876")
        one_of(self, "broker_role", ASYNC_MASTER, SYNC_MASTER, SLAVE)
        if self.is_slave:
            check(self, "broker_id", self.broker_id > 0, "at least 1 for a SLAVE")
        else:
            check(self, "broker_id", self.broker_id == 0, f"0 for the role {self.broker_role}")
        self._check_replication()
        one_of(self, "broker_permission", 2, 4, 6)
        between(self, 0, 65_535, "listen_port")
        at_least(self, 1, "default_topic_queue_nums")
        at_least(self, 1, "held_pulls_max", "held_pulls_per_queue_max")
        at_least(self, 1, "register_broker_timeout_ms")
        at_least(self, 1, "short_polling_time_ms", "queue_lock_expire_ms")
        at_least(self, 1, "flush_delay_offset_interval_ms", "flush_consumer_offset_interval_ms")
        at_least(self, 1, "transaction_check_interval_ms", "transaction_check_max")
        at_least(self, 0, "transaction_timeout_ms")
        between(self, 1_000, 3_600_000, "register_name_server_period_ms")
        at_least(self, 1_000, "channel_expired_timeout_ms")
        at_least(self, 0, "filter_data_clean_time_span_ms")
        between(self, 1, 99, "max_error_rate_of_bloom_filter")
        at_least(self, 1, "expect_consumer_num_use_filter")

    def _check_replication(self) -> None:
        is_address = not self.ha_master_address or _is_address(self.ha_master_address)
        check(self, "ha_master_address", is_address, "an address as in host:10912")
        between(self, 0, 65_535, "ha_listen_port")
        between(self, 1, 17, "in_sync_replicas")
        at_least(self, 1, "slave_timeout_ms", "max_ha_transfer_bytes_per_second")
        between(self, 1, TRANSFER_BYTES_MAX, "ha_transfer_batch_bytes")
        at_least(self, 10, "ha_send_heartbeat_interval_ms", "ha_housekeeping_interval_ms")
        at_least(self, 0, "ha_max_gap_not_in_sync_bytes")

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies a master."""
        return self.broker_role == SLAVE

    @property
    def namesrv_addrs(self) -> tuple[str, ...]:
        """The name servers, one by one."""
        return tuple(addr.strip() for addr in self.namesrv_addr.split(";") if addr.strip())


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) <= 65_535
