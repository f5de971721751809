"""Headers about offsets of a queue (29-32) and of a group in it (14, 15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class QueueHeader(Header):
    """The queue asked about; base of the headers here."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    topic: str
    queue_id: int
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class OffsetResponseHeader(Header):
    """One offset as the answer."""

    offset: Long


@dataclass(slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(QueueHeader):
    """The committed offset of a group (14); 22 is the answer when there is none."""

    consumer_group: str
    set_zero_if_not_found: bool | None = None


@dataclass(slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader(OffsetResponseHeader):
    """Answer to 14."""


@dataclass(slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(QueueHeader):
    """Commit an offset for a group (15)."""

    consumer_group: str
    commit_offset: Long


@dataclass(slots=True, kw_only=True)
class SearchOffsetRequestHeader(QueueHeader):
    """The offset at a store time (29): `boundary_type` LOWER finds the first at or after it."""

    timestamp: Long
    boundary_type: str = "LOWER"


@dataclass(slots=True, kw_only=True)
class SearchOffsetResponseHeader(OffsetResponseHeader):
    """Answer to 29."""


@dataclass(slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(QueueHeader):
    """The offset after the last message (30)."""

    committed: bool = True


@dataclass(slots=True, kw_only=True)
class GetMaxOffsetResponseHeader(OffsetResponseHeader):
    """Answer to 30."""


@dataclass(slots=True, kw_only=True)
class GetMinOffsetRequestHeader(QueueHeader):
    """The offset of the first message kept (31)."""


@dataclass(slots=True, kw_only=True)
class GetMinOffsetResponseHeader(OffsetResponseHeader):
    """Answer to 31."""


@dataclass(slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(QueueHeader):
    """The store time of the first message kept (32)."""


@dataclass(slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Answer to 32, ms since the epoch."""

    timestamp: Long
