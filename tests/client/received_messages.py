"""Messages as a consumer receives them, without a broker."""

from __future__ import annotations

from cometmq import MessageExt


def received(
    queue_offset: int = 0,
    *,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"x",
    raw_properties: bytes = b"",
    broker_name: str = "b",
    kind: type[MessageExt] = MessageExt,
) -> MessageExt:
    """A message of this place, with zeros for all that is not given."""
    host = bytes(8)
    return kind(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        body=body,
        raw_properties=raw_properties,
        reconsume_times=0,
        flag=0,
        sys_flag=0,
        phy_offset=0,
        born_ms=0,
        born_host=host,
        store_ms=0,
        store_host=host,
        prepared_offset=0,
        broker_name=broker_name,
    )
