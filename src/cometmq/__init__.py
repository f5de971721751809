"""CometMQ: a message broker, its client and a Spark data source, compatible with Apache RocketMQ.

The names below are the public ones of the client and the errors its users catch. Each is loaded
when it is first used, and none needs more than the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.client.blocking.admin import Admin
    from cometmq.client.blocking.lite_pull_consumer import LitePullConsumer
    from cometmq.client.blocking.producer import Producer
    from cometmq.client.blocking.push_consumer import PushConsumer
    from cometmq.client.client_metrics import ClientMetrics
    from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
    from cometmq.client.failures.table_sink import TableSink
    from cometmq.client.handling.handler_call import RetryLater
    from cometmq.client.middleware.middleware import CallContext, Middleware
    from cometmq.client.parking.repair_table import RepairTable
    from cometmq.client.polling.async_lite_pull_consumer import AsyncLitePullConsumer
    from cometmq.client.producer.async_producer import AsyncProducer
    from cometmq.client.producer.queue_selector import by_hash
    from cometmq.client.typed_topic import Received, Topic
    from cometmq.errors import (
        BrokerError,
        ClientError,
        CometError,
        InvalidMessage,
        PartlySent,
        RemotingError,
        RemotingTimeout,
        RouteNotFound,
        SettingsError,
        TopicExists,
        ValueNotDecoded,
        WouldHideMessages,
    )
    from cometmq.model.message import Message, MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import (
        BlockedQueue,
        ConsumeFrom,
        ConsumeStatus,
        PullResult,
        PullStatus,
        SendResult,
        SendStatus,
        TransactionResult,
        TransactionState,
    )
    from cometmq.model.selector import MessageSelector
    from cometmq.rules.failures.circuit_breaker import BreakerLimits
    from cometmq.rules.failures.failure_policy import FailurePolicy, OnFailure
    from cometmq.rules.failures.latency_fault_tolerance import LatencyTable
    from cometmq.rules.queues.flow_control import FlowLimits

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPushConsumer",
    "BlockedQueue",
    "BreakerLimits",
    "BrokerError",
    "CallContext",
    "ClientError",
    "ClientMetrics",
    "CometError",
    "ConsumeFrom",
    "ConsumeStatus",
    "FailurePolicy",
    "FlowLimits",
    "InvalidMessage",
    "LatencyTable",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessageSelector",
    "Middleware",
    "OnFailure",
    "PartlySent",
    "Producer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "Received",
    "RemotingError",
    "RemotingTimeout",
    "RepairTable",
    "RetryLater",
    "RouteNotFound",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "TableSink",
    "Topic",
    "TopicExists",
    "TransactionResult",
    "TransactionState",
    "ValueNotDecoded",
    "WouldHideMessages",
    "by_hash",
]

_HOMES = {
    "Admin": "client.blocking.admin",
    "AsyncAdmin": "client.admin.async_admin",
    "AsyncLitePullConsumer": "client.polling.async_lite_pull_consumer",
    "AsyncProducer": "client.producer.async_producer",
    "AsyncPushConsumer": "client.consumer.async_push_consumer",
    "BlockedQueue": "model.results",
    "BreakerLimits": "rules.failures.circuit_breaker",
    "BrokerError": "errors",
    "CallContext": "client.middleware.middleware",
    "ClientError": "errors",
    "ClientMetrics": "client.client_metrics",
    "CometError": "errors",
    "ConsumeFrom": "model.results",
    "ConsumeStatus": "model.results",
    "FailurePolicy": "rules.failures.failure_policy",
    "FlowLimits": "rules.queues.flow_control",
    "InvalidMessage": "errors",
    "LatencyTable": "rules.failures.latency_fault_tolerance",
    "LitePullConsumer": "client.blocking.lite_pull_consumer",
    "Message": "model.message",
    "MessageExt": "model.message",
    "MessageQueue": "model.queue",
    "MessageSelector": "model.selector",
    "Middleware": "client.middleware.middleware",
    "OnFailure": "rules.failures.failure_policy",
    "PartlySent": "errors",
    "Producer": "client.blocking.producer",
    "PullResult": "model.results",
    "PullStatus": "model.results",
    "PushConsumer": "client.blocking.push_consumer",
    "RemotingError": "errors",
    "RemotingTimeout": "errors",
    "RetryLater": "client.handling.handler_call",
    "RouteNotFound": "errors",
    "SendResult": "model.results",
    "SendStatus": "model.results",
    "SettingsError": "errors",
    "Received": "client.typed_topic",
    "Topic": "client.typed_topic",
    "TopicExists": "errors",
    "ValueNotDecoded": "errors",
    "WouldHideMessages": "errors",
    "TransactionResult": "model.results",
    "TransactionState": "model.results",
    "RepairTable": "client.parking.repair_table",
    "TableSink": "client.failures.table_sink",
    "by_hash": "client.producer.queue_selector",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cometmq' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"cometmq.{home}"), name)
    return value


def __dir__() -> list[str]:
    """Name the public names."""
    return sorted([*__all__, "__version__"])
