"""Stored records as lines and as JSON, for the commands that read the files of a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cometmq.model.message import Property
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.message_id import offset_id

if TYPE_CHECKING:
    from cometmq.wire.records.log_record import StoredRecord

_BODY_SHOWN = 60


def record_line(record: StoredRecord) -> str:
    """A record on one line: place, time, topic, queue, offset, tag, keys, size, body."""
    pairs = stored.text_properties(record)
    time = datetime.fromtimestamp(record.store_ms / 1000, UTC).isoformat(" ", "milliseconds")
    body = record.body[:_BODY_SHOWN].decode("utf-8", "backslashreplace")
    return (
        f"{record.phy_offset:>14} {time[:23]} {record.topic} {record.queue_id} "
        f"{record.queue_offset} {pairs.get(Property.TAGS, '-')} "
        f"{pairs.get(Property.KEYS, '-')} {len(record.body)} {body!r}"
    )


def record_facts(record: StoredRecord) -> dict[str, object]:
    """A record as JSON has it, by the names of RocketMQ's MessageExt."""
    return {
        "offsetMsgId": offset_id(record.store_host, record.phy_offset),
        "physicalOffset": record.phy_offset,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "properties": stored.text_properties(record),
        "body": record.body.decode("utf-8", "backslashreplace"),
    }
