"""Stored records, sent again as messages: what a former master had alone goes to the new one.

Each goes where it was, topic and queue, with its properties, so with the id that its producer gave
it; a delayed one waits as long as it was to wait. Half messages are left out: nobody knows whether
they were to be committed. Java: none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cometmq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.records import log_record, properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.session.client_session import ClientSession
    from cometmq.wire.records.log_record import StoredRecord

GROUP = "CID_RMQ_SYS_RESEND"
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC)
_TIME_NAMES = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
_STORE_NAMES = (
    b"REAL_TOPIC", b"REAL_QID", b"TRAN_MSG", b"TIMER_OUT_MS", b"TIMER_ROLL_TIMES",
    b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS",
)  # fmt: skip
_RECALL = b"TIMER_DEL_UNIQKEY"


def as_send(record: StoredRecord) -> SendMessageRequestHeaderV2 | None:
    """The header with which a record's body is sent again; None: it is not a user's message."""
    raw = log_record.shown_properties(record.properties)
    topic, queue_id = record.topic, record.queue_id
    if topic in _WAITING and properties.find(raw, _RECALL) is None:
        topic = (properties.find(raw, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        queue_id = int(properties.find(raw, b"REAL_QID") or 0)
        dropped: tuple[bytes, ...] = _STORE_NAMES
    else:
        dropped = (*_STORE_NAMES, *_TIME_NAMES)  # it was delivered: it waits no more
    if not topic or is_system_topic(topic) or not sysflag.is_queued(record.sys_flag):
        return None
    for name in dropped:
        raw = properties.remove(raw, name)
    return SendMessageRequestHeaderV2(
        producer_group=GROUP,
        topic=topic,
        default_topic="",
        default_topic_queue_nums=0,
        queue_id=queue_id,
        sys_flag=record.sys_flag & (sysflag.COMPRESSED | sysflag.COMPRESSION_MASK),
        born_timestamp=record.born_ms,
        flag=record.flag,
        properties=raw.decode("utf-8", "surrogateescape"),
        reconsume_times=record.reconsume_times,
        unit_mode=False,
        batch=False,
    )


async def resend_records(
    session: ClientSession, addr: str, records: Iterable[StoredRecord]
) -> dict[str, int]:
    """Send records to a broker one after the other; see `AsyncAdmin.resend_records`."""
    counts: Counter[str] = Counter()
    for record in records:
        header = as_send(record)
        if header is not None:
            command = request(RequestCode.SEND_MESSAGE_V2, 0, header, record.body)
            await session.call_checked(addr, command)
        counts[header.topic if header else ""] += 1
    return dict(counts)
