"""Where a message goes that waits in another queue first: its properties REAL_TOPIC and REAL_QID.

Half messages and delayed ones have them. Pure.
Java: MessageConst.PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID.
"""

from __future__ import annotations

from cometmq.errors import ProtocolError
from cometmq.model.topic import HALF_TOPIC
from cometmq.wire.records import properties

_TOPIC, _QUEUE_ID = b"REAL_TOPIC", b"REAL_QID"
_QUEUE_ID_MAX = 0x7FFFFFFF


def with_destination(raw: bytes, topic: str, queue_id: int) -> bytes:
    """The properties of a message that is for this queue."""
    return properties.put(properties.put(raw, _TOPIC, topic.encode()), _QUEUE_ID, b"%d" % queue_id)


def without_destination(raw: bytes) -> bytes:
    """The properties of a message that has come to its queue."""
    return properties.remove(properties.remove(raw, _TOPIC), _QUEUE_ID)


def destination_of(raw: bytes) -> tuple[str, int]:
    """The topic and queue that a message is for; ProtocolError when its properties lack them."""
    topic, queue_id = properties.find(raw, _TOPIC) or b"", properties.find(raw, _QUEUE_ID) or b""
    name = topic.decode("utf-8", "replace")
    if not name or name == HALF_TOPIC or not queue_id.isdigit() or int(queue_id) > _QUEUE_ID_MAX:
        raise ProtocolError(f"it is for queue {queue_id!r} of topic {topic!r}")
    return name, int(queue_id)
