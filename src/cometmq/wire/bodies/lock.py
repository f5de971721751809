"""Bodies of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

Our clients say in `cometLockEnd` what ends a lock, and our brokers tell those who say it whose the
refused locks are, in `cometHolders`; RocketMQ ignores both.
Java: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cometmq.model.queue import MessageQueue


_END, _HOLDERS = "cometLockEnd", "cometHolders"


class LockRequest(NamedTuple):
    """Queues that a client of a group wants to lock or gives up."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...]
    only_this_broker: bool = False
    end: EarlyUnlockCause = EarlyUnlockCause.LEAVING
    """What ends the locks before their time."""


def encode_lock_request(request: LockRequest) -> bytes:
    """Write the body of 41 and 42."""
    fields: dict[str, object] = {
        "clientId": request.client_id,
        "consumerGroup": request.consumer_group,
        "mqSet": [json_fields.queue_fields(queue) for queue in request.queues],
        "onlyThisBroker": request.only_this_broker,
    }
    if request.end is not EarlyUnlockCause.LEAVING:
        fields[_END] = request.end
    return fastjson.dumps(fields)


def decode_lock_request(data: bytes) -> LockRequest:
    """Read the body of 41 and 42."""
    obj = json_fields.load_request(data)
    return LockRequest(
        json_fields.text(obj, "consumerGroup"),
        json_fields.text(obj, "clientId"),
        tuple(json_fields.items(obj, "mqSet", json_fields.queue_of)),
        json_fields.flag(obj, "onlyThisBroker"),
        json_fields.member(obj, _END, EarlyUnlockCause.LEAVING),
    )


def encode_locked(
    queues: Collection[MessageQueue], holders: Mapping[MessageQueue, LockHolder] | None = None
) -> bytes:
    """Write which of the queues asked for the client holds now, and who holds others."""
    return b"".join(locked_pieces(sorted(queues), holders or {}, len(queues) + len(holders or ())))


def locked_pieces(
    queues: Sequence[MessageQueue], holders: Mapping[MessageQueue, LockHolder], size: int
) -> Iterator[bytes]:
    """The same in pieces of so many queues, which are sorted."""
    mark = b"{"
    if holders:
        yield b'{"%b":[' % _HOLDERS.encode()
        yield from _items([_holder_fields(*item) for item in sorted(holders.items())], size)
        mark = b"],"
    yield mark + b'"lockOKMQSet":['
    yield from _items(map(json_fields.queue_fields, queues), size)
    yield b"]}"


def _items(values: Iterable[Mapping[str, object]], size: int) -> Iterator[bytes]:
    """The items of a list, so many in a piece."""
    rest, mark = iter(values), b""
    while part := list(islice(rest, size)):
        yield mark + fastjson.dumps(part)[1:-1]
        mark = b","


def _holder_fields(queue: MessageQueue, holder: LockHolder) -> dict[str, object]:
    return {
        **json_fields.queue_fields(queue),
        "clientId": holder.client_id,
        "heldMs": holder.held_ms,
        "leftMs": holder.left_ms,
    }


def decode_locked(data: bytes) -> frozenset[MessageQueue]:
    """Read which of the queues asked for we hold now; an empty body means none."""
    return frozenset(
        json_fields.items(json_fields.load_object(data), "lockOKMQSet", json_fields.queue_of)
    )


def decode_holders(data: bytes) -> dict[MessageQueue, LockHolder]:
    """Read who holds the queues that were refused, as far as the broker tells."""
    return dict(json_fields.items(json_fields.load_object(data), _HOLDERS, _holder_of))


def _holder_of(value: object) -> tuple[MessageQueue, LockHolder]:
    obj = json_fields.object_of(value, _HOLDERS)
    holder = LockHolder(
        json_fields.text(obj, "clientId"),
        json_fields.number(obj, "heldMs"),
        json_fields.number(obj, "leftMs"),
    )
    return json_fields.queue_of(value), holder
