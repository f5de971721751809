"""A broker of FastStream on CometMQ and RocketMQ: what its users import.

Needs `pip install 'cometmq[faststream]'`.
"""

try:
    from cometmq.faststream.broker import CometBroker
    from cometmq.faststream.memory_broker import TestCometBroker
    from cometmq.faststream.messages import CometMessage, CometResponse
    from cometmq.faststream.router import CometPublisher, CometRoute, CometRouter
except ModuleNotFoundError as error:
    if error.name not in ("faststream", "fast_depends"):
        raise
    raise ImportError(
        "cometmq.faststream needs FastStream: pip install 'cometmq[faststream]'"
    ) from error

__all__ = [
    "CometBroker",
    "CometMessage",
    "CometPublisher",
    "CometResponse",
    "CometRoute",
    "CometRouter",
    "TestCometBroker",
]
