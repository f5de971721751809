"""CometMQ: a message broker, its client and a Spark data source, compatible with Apache RocketMQ.

The names below are the public ones of the client; each is loaded when it is first used, and none
needs more than the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.client.admin import AsyncAdmin
    from cometmq.client.handlers import RetryLater
    from cometmq.client.producer import AsyncProducer
    from cometmq.client.push_consumer import AsyncPushConsumer
    from cometmq.client.sync import Admin, Producer, PushConsumer
    from cometmq.errors import CometError
    from cometmq.model.message import Message, MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import ConsumeFrom, ConsumeStatus, SendResult, SendStatus
    from cometmq.rules.flow import FlowLimits

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPushConsumer",
    "CometError",
    "ConsumeFrom",
    "ConsumeStatus",
    "FlowLimits",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PushConsumer",
    "RetryLater",
    "SendResult",
    "SendStatus",
]

_HOMES = {
    "Admin": "client.sync",
    "AsyncAdmin": "client.admin",
    "AsyncProducer": "client.producer",
    "AsyncPushConsumer": "client.push_consumer",
    "CometError": "errors",
    "ConsumeFrom": "model.results",
    "ConsumeStatus": "model.results",
    "FlowLimits": "rules.flow",
    "Message": "model.message",
    "MessageExt": "model.message",
    "MessageQueue": "model.queue",
    "Producer": "client.sync",
    "PushConsumer": "client.sync",
    "RetryLater": "client.handlers",
    "SendResult": "model.results",
    "SendStatus": "model.results",
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
