"""What a broker shows monitoring: Apache's metrics under its names and labels, and our own.

Names are those that Prometheus sees of Apache's broker: OpenTelemetry appends the unit to some.
Owns the descriptions of what is made when somebody asks; what is counted is described in
`metric_definitions`. The labels cluster, node_type and node_id come with every one.
Java: BrokerMetricsConstant, DefaultStoreMetricsConstant.
"""

from __future__ import annotations

from dataclasses import replace

from cometmq.broker.metrics import metric_definitions as counted
from cometmq.metrics.registry import Metric, MetricKind

_GAUGE = MetricKind.GAUGE
_SENT = ("topic", "message_type", "is_system")
_PULLED = ("topic", "consumer_group", "is_system")
_BEHIND = ("consumer_group", "topic", "is_retry", "is_system")
_DISK = ("storage_type", "storage_medium")

MESSAGES_IN = replace(counted.MESSAGES_IN, labels=_SENT)
BYTES_IN = replace(counted.BYTES_IN, labels=_SENT)
MESSAGES_OUT = replace(counted.MESSAGES_OUT, labels=_PULLED)
BYTES_OUT = replace(counted.BYTES_OUT, labels=_PULLED)
MESSAGES_TO_DLQ = replace(counted.MESSAGES_TO_DLQ, labels=("consumer_group", "topic", "is_system"))
FLUSH_BEHIND = replace(counted.FLUSH_BEHIND, labels=_DISK)
DISPATCH_BEHIND = replace(counted.DISPATCH_BEHIND, labels=_DISK)

PERMISSION = Metric(
    "rocketmq_broker_permission", _GAUGE, "1", "What the broker allows: 2 write, 4 read, 6 both."
)
PRODUCERS = Metric(
    "rocketmq_producer_connections",
    _GAUGE,
    "{connection}",
    "Connections of producers.",
    ("language", "version", "protocol_type"),
)
CONSUMERS = Metric(
    "rocketmq_consumer_connections",
    _GAUGE,
    "{connection}",
    "Connections of consumers.",
    ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)
LAG_MESSAGES = Metric(
    "rocketmq_consumer_lag_messages",
    _GAUGE,
    "{message}",
    "Messages stored that the group has not done.",
    _BEHIND,
)
LAG_LATENCY = Metric(
    "rocketmq_consumer_lag_latency_milliseconds",
    _GAUGE,
    "ms",
    "Age of the oldest message that the group has not done, milliseconds.",
    _BEHIND,
)
IN_FLIGHT_MESSAGES = Metric(
    "rocketmq_consumer_inflight_messages",
    _GAUGE,
    "{message}",
    "Messages pulled by the group and not done.",
    _BEHIND,
)
QUEUEING_LATENCY = Metric(
    "rocketmq_consumer_queueing_latency_milliseconds",
    _GAUGE,
    "ms",
    "Age of the oldest message that the group has not pulled, milliseconds.",
    _BEHIND,
)
READY_MESSAGES = Metric(
    "rocketmq_consumer_ready_messages",
    _GAUGE,
    "{message}",
    "Messages stored that the group has not pulled.",
    _BEHIND,
)
STORAGE_SIZE = Metric(
    "rocketmq_storage_size_bytes", _GAUGE, "By", "Bytes in use on the disk of the store.", _DISK
)
RESERVE_TIME = Metric(
    "rocketmq_storage_message_reserve_time_milliseconds",
    _GAUGE,
    "ms",
    "Age of the oldest message stored, milliseconds.",
    _DISK,
)
TIMING_MESSAGES = Metric(
    "rocketmq_timing_messages",
    _GAUGE,
    "{message}",
    "Messages that wait for a time of their own.",
    ("topic",),
)
AS_COUNTED = {
    metric.name: metric
    for metric in (
        MESSAGES_IN,
        BYTES_IN,
        MESSAGES_OUT,
        BYTES_OUT,
        MESSAGES_TO_DLQ,
        FLUSH_BEHIND,
        DISPATCH_BEHIND,
    )
}
"""Metrics of the registry that are shown with more labels than they are counted by."""

NOT_SHOWN = frozenset((counted.QUEUE_MESSAGES_OUT.name, counted.READ_MS.name))
"""Metrics by queue and group: a series for each would be too many; `cometmq group` shows them."""
