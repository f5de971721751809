"""Header of CONSUMER_SEND_MSG_BACK (36): a message that could not be consumed goes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class ConsumerSendMsgBackRequestHeader(Header):
    """`offset` is the physical one; `delay_level` 0 lets the broker choose, below 0 gives up."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    broker_name: str | None = None
