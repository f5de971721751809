"""Hot. Prepares a sent message for the store: checks it, and completes its properties.

Knows no topics and no queues.
Java: SendMessageProcessor.sendMessage (the part before putMessage), HookUtils.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cometmq.broker.sends.send_check import illegal_message
from cometmq.errors import Reject
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_draft import MessageDraft

PRIORITY = b"_SYS_MSG_PRIORITY_"
"""The property with a message's priority, a number from 0 on: the queue that it goes to."""
COPIED_MARKS = (b"MSG_REGION\x01", b"CLUSTER\x01")
"""What a message carries that was taken out of a broker and is sent again."""
_BEFORE_PRIORITY = (
    b"DELAY",
    b"TIMER_DELIVER_MS",
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"__SHARDINGKEY",
)
"""Properties that make a message delayed or sharded, and not one with a priority."""
_WHOLE = re.compile(rb"[+-]?[0-9]{1,10}")
TRANSIENT_MARK = b"__RMQ.TRANSIENT."


class MessagePreparer:
    """Completes and checks messages."""

    def __init__(
        self, settings: BrokerSettings, store: StoreSettings, next_key: Callable[[], str]
    ) -> None:
        """`next_key` makes the UNIQ_KEY of a message that came without one."""
        self._next_key = next_key
        self._store_settings = store
        self.region = {"MSG_REGION": settings.region_id, "TRACE_ON": "true"}
        """What every response to a send carries."""
        self.tail = properties.encode({**self.region, "CLUSTER": settings.broker_cluster_name})
        """What every stored message's properties end with."""

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these settings from now on."""
        self._store_settings = settings

    def complete(self, raw: bytes) -> bytes:
        """A sender's properties as they are stored: with what a broker adds."""
        raw = self.cleaned(raw)
        if properties.find(raw, b"UNIQ_KEY") is None:
            raw = properties.append(raw, b"UNIQ_KEY", self._next_key().encode())
        elif raw[-1] != 2:
            raw += b"\x02"
        return raw + self.tail

    @staticmethod
    def cleaned(raw: bytes) -> bytes:
        """A sender's properties without those that only a broker sets or uses."""
        if any(b"\x02" + mark in raw or raw.startswith(mark) for mark in COPIED_MARKS):
            for key in (b"MSG_REGION", b"TRACE_ON", b"CLUSTER"):
                raw = properties.remove(raw, key)
        if b"POP_CK\x01" in raw:
            raw = properties.remove(raw, b"POP_CK")
        if b"__CRC32#\x01" in raw:
            raw = properties.remove(raw, b"__CRC32#")
        if TRANSIENT_MARK in raw:
            raw = _without_transient(raw)
        return raw

    def check_content(self, draft: MessageDraft) -> None:
        """Raise Reject for a message that this broker does not take."""
        raw, size_max = draft.properties, self._store_settings.max_message_bytes
        if not draft.body:
            raise illegal_message("the body is empty")
        if len(draft.body) > size_max:
            raise illegal_message(f"the body has {len(draft.body)} bytes, the limit is {size_max}")
        if b"INNER_NUM\x01" in raw and properties.find(raw, b"INNER_NUM"):
            raise illegal_message(
                "the property INNER_NUM marks a batch in one record, which this is not"
            )
        if b"DELAY\x01" in raw:
            _check_delay(raw)


def prioritized(raw: bytes, queue_id: int, write_queue_nums: int) -> tuple[bytes, int]:
    """A message's properties and queue once its priority has chosen.

    A half, delayed or sharded message has none: it loses the property and keeps its queue.
    Java: SendMessageProcessor.sendMessage, TopicMessageType.parseFromMessageProperty.
    """
    if PRIORITY + b"\x01" not in raw:
        return raw, queue_id
    text = properties.find(raw, PRIORITY)
    if text is None or not _WHOLE.fullmatch(text) or not 0 <= int(text) < 1 << 31:
        return raw, queue_id
    is_half = (properties.find(raw, b"TRAN_MSG") or b"").lower() == b"true"
    if is_half or any(properties.find(raw, key) is not None for key in _BEFORE_PRIORITY):
        return properties.remove(raw, PRIORITY), queue_id
    return raw, max(0, min(int(text), write_queue_nums - 1))


def check_is_whole(draft: MessageDraft) -> None:
    """Raise Reject for a half message by its flag only: it would be stored and never seen."""
    if not sysflag.is_queued(draft.sys_flag):
        raise illegal_message(
            "the flag says that the message is half, the property TRAN_MSG does not"
        )


def _check_delay(raw: bytes) -> None:
    level = properties.find(raw, b"DELAY") or b"0"
    is_number = level.removeprefix(b"-").isdigit() and len(level) < 12
    if not is_number or abs(int(level)) >= 1 << 31:
        text = level[:32].decode("utf-8", "replace")
        raise Reject(ResponseCode.SYSTEM_ERROR, f"the delay level {text!r} is no number")


def _without_transient(raw: bytes) -> bytes:
    kept = [item for item in raw.split(b"\x02") if item and not item.startswith(TRANSIENT_MARK)]
    return b"".join([item + b"\x02" for item in kept])
