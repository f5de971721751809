"""CometMQ: a message broker, its client and a Spark data source, compatible with Apache RocketMQ.

The names below are the public ones of the client and the errors its users catch. Each is loaded
when it is first used, and none needs more than the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.client.admin import AsyncAdmin
    from cometmq.client.choice import by_hash
    from cometmq.client.handlers import RetryLater
    from cometmq.client.lite_pull import AsyncLitePullConsumer
    from cometmq.client.producer import AsyncProducer
    from cometmq.client.push_consumer import AsyncPushConsumer
    from cometmq.client.sinks import TableSink
    from cometmq.client.sync import Admin, Producer
    from cometmq.client.sync_consumers import LitePullConsumer, PushConsumer
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
    from cometmq.rules.breaker import BreakerLimits
    from cometmq.rules.failure_policy import FailurePolicy, OnFailure
    from cometmq.rules.flow import FlowLimits

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
    "ClientError",
    "CometError",
    "ConsumeFrom",
    "ConsumeStatus",
    "FailurePolicy",
    "FlowLimits",
    "InvalidMessage",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessageSelector",
    "OnFailure",
    "PartlySent",
    "Producer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RemotingError",
    "RemotingTimeout",
    "RetryLater",
    "RouteNotFound",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "TableSink",
    "TransactionResult",
    "TransactionState",
    "by_hash",
]

_HOMES = {
    "Admin": "client.sync",
    "AsyncAdmin": "client.admin",
    "AsyncLitePullConsumer": "client.lite_pull",
    "AsyncProducer": "client.producer",
    "AsyncPushConsumer": "client.push_consumer",
    "BlockedQueue": "model.results",
    "BreakerLimits": "rules.breaker",
    "BrokerError": "errors",
    "ClientError": "errors",
    "CometError": "errors",
    "ConsumeFrom": "model.results",
    "ConsumeStatus": "model.results",
    "FailurePolicy": "rules.failure_policy",
    "FlowLimits": "rules.flow",
    "InvalidMessage": "errors",
    "LitePullConsumer": "client.sync_consumers",
    "Message": "model.message",
    "MessageExt": "model.message",
    "MessageQueue": "model.queue",
    "MessageSelector": "model.selector",
    "OnFailure": "rules.failure_policy",
    "PartlySent": "errors",
    "Producer": "client.sync",
    "PullResult": "model.results",
    "PullStatus": "model.results",
    "PushConsumer": "client.sync_consumers",
    "RemotingError": "errors",
    "RemotingTimeout": "errors",
    "RetryLater": "client.handlers",
    "RouteNotFound": "errors",
    "SendResult": "model.results",
    "SendStatus": "model.results",
    "SettingsError": "errors",
    "TransactionResult": "model.results",
    "TransactionState": "model.results",
    "TableSink": "client.sinks",
    "by_hash": "client.choice",
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
