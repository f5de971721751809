"""Every metric of a broker: its name, its unit, its labels.

The names are those of RocketMQ's exporter where it has one (BrokerMetricsConstant), others begin
with `cometmq_`. A new metric is one line here and its registration in `broker_stats` or `gauges`.
"""

from __future__ import annotations

from cometmq.metrics.registry import Metric, MetricKind

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_TOPIC = ("topic",)
_READER = ("topic", "consumer_group")
_QUEUE_READER = ("topic", "queue_id", "consumer_group")

MESSAGES_IN = Metric(
    "rocketmq_messages_in_total", _COUNTER, "{message}", "Messages stored in a topic.", _TOPIC
)
BYTES_IN = Metric(
    "rocketmq_throughput_in_total", _COUNTER, "By", "Bytes of records stored in a topic.", _TOPIC
)
SENDS = Metric("cometmq_sends_total", _COUNTER, "{call}", "Sends that stored messages.", _TOPIC)
MESSAGES_OUT = Metric(
    "rocketmq_messages_out_total", _COUNTER, "{message}", "Messages pulled by a group.", _READER
)
BYTES_OUT = Metric(
    "rocketmq_throughput_out_total", _COUNTER, "By", "Bytes of records pulled by a group.", _READER
)
PULLS = Metric(
    "cometmq_pulls_total", _COUNTER, "{call}", "Pulls of a group that found messages.", _READER
)
QUEUE_MESSAGES_OUT = Metric(
    "cometmq_queue_messages_out_total",
    _COUNTER,
    "{message}",
    "Messages pulled by a group from one queue.",
    _QUEUE_READER,
)
READ_MS = Metric(
    "cometmq_read_time_ms_total",
    _COUNTER,
    "ms",
    "Time spent reading for the pulls of a group from one queue.",
    _QUEUE_READER,
)
PULLS_FOUND = Metric("cometmq_pulls_found_total", _COUNTER, "{call}", "Reads that found messages.")
PULLS_EMPTY = Metric("cometmq_pulls_empty_total", _COUNTER, "{call}", "Reads that found nothing.")
MESSAGES_SENT_BACK = Metric(
    "cometmq_messages_sent_back_total", _COUNTER, "{message}", "Messages sent back.", _READER
)
MESSAGES_TO_DLQ = Metric(
    "rocketmq_send_to_dlq_messages_total", _COUNTER, "{message}", "Dead letters.", _READER
)
COMMITS = Metric(
    "rocketmq_commit_messages_total", _COUNTER, "{message}", "Half messages committed.", _TOPIC
)
ROLLBACKS = Metric(
    "rocketmq_rollback_messages_total", _COUNTER, "{message}", "Half messages rolled back.", _TOPIC
)
MESSAGES_DELAYED = Metric(
    "cometmq_messages_delayed_total",
    _COUNTER,
    "{message}",
    "Messages that a sender delayed, by the queue of their level.",
    ("topic", "queue_id"),
)
MESSAGES_DUE = Metric(
    "cometmq_messages_due_total",
    _COUNTER,
    "{message}",
    "Delayed messages delivered to their topic, by the queue of their level.",
    ("topic", "queue_id"),
)
CONNECTION_EVENTS = Metric(
    "cometmq_connection_events_total", _COUNTER, "{event}", "Connections.", ("event",)
)
REGISTRATIONS = Metric(
    "cometmq_client_registrations_total",
    _COUNTER,
    "{client}",
    "Clients named by heartbeats.",
    ("role",),
)
REGISTRATION_MS = Metric(
    "cometmq_client_registration_time_ms_total",
    _COUNTER,
    "ms",
    "Time spent registering clients named by heartbeats.",
    ("role",),
)
READ_LONGEST_MS = Metric(
    "cometmq_read_longest_ms", _GAUGE, "ms", "The longest read for a pull since the start."
)
PUT_SECONDS = Metric(
    "cometmq_put_seconds", _HISTOGRAM, "s", "Time from a put until it is as durable as promised."
)
PUT_LONGEST_S = Metric("cometmq_put_longest_s", _GAUGE, "s", "The longest put since the start.")
PUTS_FAILED = Metric(
    "cometmq_puts_failed_total", _COUNTER, "{message}", "Puts refused, or lost by a failed write."
)
FLUSH_BEHIND = Metric(
    "rocketmq_storage_flush_behind_bytes", _GAUGE, "By", "Bytes of the log not yet flushed."
)
DISPATCH_BEHIND = Metric(
    "rocketmq_storage_dispatch_behind_bytes", _GAUGE, "By", "Bytes of the log not yet in the index."
)
LOG_MIN_OFFSET = Metric(
    "cometmq_log_min_offset_bytes", _GAUGE, "By", "The first byte of the log still there."
)
LOG_MAX_OFFSET = Metric(
    "cometmq_log_max_offset_bytes", _GAUGE, "By", "The byte after the newest record of the log."
)
DISK_USED_RATIO = Metric(
    "cometmq_disk_used_ratio", _GAUGE, "1", "Share of the store's disk that is in use."
)
DISK_TOTAL = Metric("cometmq_disk_total_bytes", _GAUGE, "By", "Size of the store's disk.")
HELD_REQUESTS = Metric(
    "cometmq_held_requests", _GAUGE, "{request}", "Requests held until a message arrives."
)
TOPICS = Metric("rocketmq_topic_number", _GAUGE, "{topic}", "Topics of this broker.")
GROUPS = Metric("rocketmq_consumer_group_number", _GAUGE, "{group}", "Groups of this broker.")
CONNECTIONS = Metric("cometmq_connections", _GAUGE, "{connection}", "Open connections.")
REQUESTS_IN_FLIGHT = Metric(
    "cometmq_in_flight_requests", _GAUGE, "{request}", "Requests that wait for their answer."
)
SLAVES = Metric("cometmq_slaves", _GAUGE, "{slave}", "Slaves that copy this master.")
SLAVE_LAG_BYTES = Metric(
    "cometmq_slave_lag_bytes", _GAUGE, "By", "Bytes that the slave furthest behind lacks."
)
SLAVE_LAG_MS = Metric(
    "cometmq_slave_lag_ms", _GAUGE, "ms", "For how long a slave has lacked something, at most."
)
SLAVE_TIMEOUTS = Metric(
    "cometmq_slave_timeouts_total",
    _COUNTER,
    "{write}",
    "Writes of a SYNC_MASTER that its slaves did not acknowledge in time.",
)
IS_FOLLOWING = Metric(
    "cometmq_is_following", _GAUGE, "{slave}", "1 while this slave copies its master, else 0."
)
EPOCH = Metric(
    "cometmq_epoch", _GAUGE, "{epoch}", "The newest promotion that this broker is part of; 1: none."
)
