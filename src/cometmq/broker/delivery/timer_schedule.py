"""What a message at a time of its own becomes at its put: one of the timer topic, or none.

Java: HookUtils.handleScheduleMessage, TimerMessageStore.isReject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.delivery.real_destination import with_destination
from cometmq.broker.sends.send_check import illegal_message
from cometmq.broker.sends.tag_codes import delay_level
from cometmq.errors import Reject
from cometmq.model.topic import TIMER_TOPIC
from cometmq.rules import timer_times
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_draft import MessageDraft
    from cometmq.store.message_store import MessageStore
    from cometmq.store.timers.timer_index import TimerIndex

TIMER_MARK = b"TIMER_DEL"
"""What the properties of every timer message contain."""
OUT_MS, RECALL_KEY = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY"
_ASKS = (timer_times.DELAY_SEC, timer_times.DELAY_MS, timer_times.DELIVER_MS)


def asks_for_time(raw: bytes) -> bool:
    """Whether properties make a timer message; what was one and is stored again is none."""
    return TIMER_MARK in raw and _asked(raw) is not None


def _asked(raw: bytes) -> tuple[bytes, bytes] | None:
    """The property that says when, and its value."""
    if properties.find(raw, OUT_MS) is not None:
        return None
    return next(((key, found) for key in _ASKS if (found := properties.find(raw, key))), None)


class TimerSchedule:
    """Redirects timer messages to the timer topic. Belongs to the broker's loop."""

    def __init__(self, store: MessageStore, index: TimerIndex, settings: StoreSettings) -> None:
        self._store = store
        self._index = index
        self._settings = settings

    def apply(self, draft: MessageDraft) -> None:
        """Redirect a message that asks for a time to come; leave others as they are.

        A delay level wins. Raises Reject: the time is no number or too far, or timers are off.
        """
        asked = _asked(draft.properties)
        if asked is None:
            return
        if delay_level(draft.properties) > 0:
            for key in _ASKS:
                draft.properties = properties.remove(draft.properties, key)
            return
        self._store.renew_store_time()  # its delay begins now, however long this iteration lasts
        now_ms = self._store.current_store_ms()
        due_ms = self._due_ms(*asked, now_ms)
        if due_ms > now_ms:
            self._redirect(draft, timer_times.slot_of(due_ms, self._index.precision_ms))
        elif properties.find(draft.properties, RECALL_KEY) is not None:
            raise illegal_message("what it would recall was due before")

    def check(self, raw: bytes) -> None:
        """Raise Reject where `apply` would: for a message that is put later."""
        asked = _asked(raw)
        if asked is not None and delay_level(raw) <= 0:
            self._due_ms(*asked, self._store.current_store_ms())

    def _due_ms(self, key: bytes, value: bytes, now_ms: int) -> int:
        if not self._settings.timer_wheel_enable:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                "messages at a time of their own are switched off here: timerWheelEnable=false",
            )
        due_ms = timer_times.asked_ms(key, value, now_ms)
        if due_ms is None:
            text = value[:32].decode("utf-8", "replace")
            raise illegal_message(f"{key.decode()} is {text!r}, which is no whole number")
        max_s = self._settings.timer_max_delay_s
        if due_ms - now_ms > max_s * 1_000:
            raise illegal_message(
                f"it would be due in {(due_ms - now_ms) // 1_000} s, and timerMaxDelaySec allows "
                f"{max_s} s"
            )
        return due_ms

    def _redirect(self, draft: MessageDraft, slot_ms: int) -> None:
        limit = self._settings.timer_congest_num_each_slot
        if self._index.count_at(slot_ms) >= limit:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"{limit} messages are due at that moment already, the most that "
                "timerCongestNumEachSlot allows; ask for another time",
            )
        raw = properties.put(draft.properties, OUT_MS, b"%d" % slot_ms)
        draft.properties = with_destination(raw, draft.topic, draft.queue_id)
        draft.topic = TIMER_TOPIC
        draft.queue_id = 0
