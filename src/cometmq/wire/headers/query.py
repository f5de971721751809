"""Headers of VIEW_MESSAGE_BY_ID (33) and QUERY_MESSAGE (12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class ViewMessageRequestHeader(Header):
    """The record at a physical offset (33)."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    topic: str | None = None
    offset: Long
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryMessageRequestHeader(Header):
    """Messages by key (12); times in ms. `is_unique_key` says the key is a UNIQ_KEY.

    `index_type` since 5.5: T says that the key is a tag.
    """

    wire_names: ClassVar[WireNames] = {
        "is_unique_key": "_UNIQUE_KEY_QUERY",
        "broker_name": "bname",
    }
    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    is_unique_key: bool = False
    index_type: str | None = None
    last_key: str | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryMessageResponseHeader(Header):
    """How far the index reaches."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long
