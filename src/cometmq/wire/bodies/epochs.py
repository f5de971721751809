"""Body of the answer to 1007: the epochs that a broker knows.

`brokerId` apart, what RocketMQ's answer lacks is ours: `id` and `formerBrokerId` of an epoch, and
`promised`. Java: EpochEntryCache.
"""

from __future__ import annotations

from typing import Any

from cometmq.errors import ProtocolError
from cometmq.model.replication import Epoch, EpochStatus
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields


def encode_epoch_status(status: EpochStatus, cluster: str, broker: str) -> bytes:
    """Write the answer to 1007."""
    ends = [*(each.start for each in status.epochs[1:]), status.log_end]
    entries = [
        {**epoch_fields(each), "endOffset": end}
        for each, end in zip(status.epochs, ends, strict=True)
    ]
    return fastjson.dumps(
        {
            "brokerId": status.broker_id,
            "brokerName": broker,
            "clusterName": cluster,
            "epochList": entries,
            "promised": status.promised,
            "maxOffset": status.log_end,
        }
    )


def decode_epoch_status(data: bytes) -> EpochStatus:
    """Read that answer; ProtocolError where it has no epochs from byte 0 on, in their order."""
    obj = json_fields.load_object(data)
    log_end = json_fields.number(obj, "maxOffset")
    if log_end < 0:
        raise ProtocolError(f"a log that ends at {log_end}")
    return EpochStatus(
        json_fields.number(obj, "brokerId"),
        epochs_of(obj, "epochList"),
        json_fields.number(obj, "promised"),
        log_end,
    )


def epoch_fields(epoch: Epoch) -> dict[str, object]:
    """One epoch as JSON has it."""
    return {
        "epoch": epoch.number,
        "formerBrokerId": epoch.former_broker_id,
        "id": epoch.id,
        "startOffset": epoch.start,
    }


def epochs_of(obj: json_fields.Json, name: str) -> tuple[Epoch, ...]:
    """The epochs under this name, in order; ProtocolError: there is none, or they cannot be."""
    found = tuple(json_fields.items(obj, name, _epoch_of))
    numbers, starts = [each.number for each in found], [each.start for each in found]
    if not found or sorted(set(numbers)) != numbers or sorted(starts) != starts or starts[0]:
        raise ProtocolError(f"{name} is no list of epochs in their order")
    return found


def _epoch_of(value: Any) -> Epoch:
    obj = json_fields.object_of(value, "an epoch")
    return Epoch(
        json_fields.number(obj, "epoch"),
        json_fields.number(obj, "startOffset"),
        json_fields.text(obj, "id"),
        json_fields.number(obj, "formerBrokerId"),
    )
