"""Bodies of offsets: a reset (220, 222), a consumer's own (221), a broker's (consumerOffset.json).

Java: ResetOffsetBody, GetConsumerStatusBody, ConsumerOffsetManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.topic import version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.model.queue import MessageQueue
    from cometmq.model.topic import DataVersion


class StoredOffsets(NamedTuple):
    """The committed offsets of a broker: by `topic@group`, then by queue id."""

    version: DataVersion | None
    offsets: dict[str, dict[int, int]]


def stored_offsets_of(obj: json_fields.Json) -> StoredOffsets:
    """Read a broker's offsets as consumerOffset.json has them."""
    raw_version = obj.get("dataVersion")
    version = version_of(raw_version) if raw_version else None
    return StoredOffsets(version, json_fields.table(obj, "offsetTable", json_fields.number_table))


def decode_stored_offsets(data: bytes) -> StoredOffsets:
    """Read the answer to 43."""
    return stored_offsets_of(json_fields.load_object(data))


def encode_reset_offset(offsets: Mapping[MessageQueue, int], *, as_list: bool = False) -> bytes:
    """Write where queues are moved to; `as_list` is the form for clients in C++."""
    if as_list:
        entries = [{**json_fields.queue_fields(q), "offset": offsets[q]} for q in sorted(offsets)]
        return fastjson.dumps({"offsetTable": entries})
    return fastjson.dumps({"offsetTable": json_fields.queue_keys(offsets)})


def reset_offset_entry(queue: MessageQueue, offset: int) -> bytes:
    """One entry of that table."""
    return json_fields.queue_entry(queue, offset)


def decode_reset_offset(data: bytes) -> dict[MessageQueue, int]:
    """Read where queues are moved to, in either form."""
    obj = json_fields.load_object(data)
    if isinstance(obj.get("offsetTable"), list):
        entries = json_fields.items(obj, "offsetTable", json_fields.object_of)
        return {
            json_fields.queue_of(entry): json_fields.number(entry, "offset") for entry in entries
        }
    return json_fields.queue_table(obj, "offsetTable", _offset)


def encode_consumer_status(
    own: Mapping[MessageQueue, int], by_client: Mapping[str, Mapping[MessageQueue, int]]
) -> bytes:
    """Write the offsets one client holds (221), or those of several by client id (223)."""
    fields = {
        "consumerTable": {name: json_fields.queue_keys(table) for name, table in by_client.items()},
        "messageQueueTable": json_fields.queue_keys(own),
    }
    return fastjson.dumps(fields)


def consumer_status_entry(client_id: str, held: Mapping[MessageQueue, int]) -> bytes:
    """One entry of `consumerTable` in the answer to 223."""
    return fastjson.dump_entry(client_id, json_fields.queue_keys(held))


def decode_consumer_status(
    data: bytes,
) -> tuple[dict[MessageQueue, int], dict[str, dict[MessageQueue, int]]]:
    """Read what `encode_consumer_status` writes."""
    obj = json_fields.load_object(data)
    clients = json_fields.object_of(obj.get("consumerTable"), "consumerTable")
    return json_fields.queue_table(obj, "messageQueueTable", _offset), {
        name: json_fields.queue_table(clients, name, _offset) for name in clients
    }


def _offset(value: Any) -> int:
    return json_fields.as_number(value, "an offset")
