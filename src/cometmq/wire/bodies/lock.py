"""Bodies of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

Java: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields as shape

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.model.queue import MessageQueue


class LockRequest(NamedTuple):
    """Queues that a client of a group wants to lock or gives up."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...]
    only_this_broker: bool = False


def encode_lock_request(request: LockRequest) -> bytes:
    """Write the body of 41 and 42."""
    fields = {
        "clientId": request.client_id,
        "consumerGroup": request.consumer_group,
        "mqSet": [shape.queue_fields(queue) for queue in request.queues],
        "onlyThisBroker": request.only_this_broker,
    }
    return fastjson.dumps(fields)


def decode_lock_request(data: bytes) -> LockRequest:
    """Read the body of 41 and 42."""
    obj = shape.load_object(data)
    return LockRequest(
        shape.text(obj, "consumerGroup"),
        shape.text(obj, "clientId"),
        tuple(shape.items(obj, "mqSet", shape.queue_of)),
        shape.flag(obj, "onlyThisBroker"),
    )


def encode_locked(queues: Collection[MessageQueue]) -> bytes:
    """Write which of the queues asked for the client holds now."""
    return fastjson.dumps({"lockOKMQSet": [shape.queue_fields(queue) for queue in sorted(queues)]})


def decode_locked(data: bytes) -> frozenset[MessageQueue]:
    """Read which of the queues asked for we hold now; an empty body means none."""
    return frozenset(shape.items(shape.load_object(data), "lockOKMQSet", shape.queue_of))
