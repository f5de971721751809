"""When a timer message is due, and which slot of the wheel it waits in. Pure.

Times are epoch milliseconds. A slot is named by a time that the precision divides; what is in it is
delivered once that much more has passed, so that nothing comes early.
Java: HookUtils.transformTimerMessage, TimerMessageStore.doEnqueue.
"""

from __future__ import annotations

import re

DELAY_SEC, DELAY_MS, DELIVER_MS = b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"
"""The properties that make a timer message, the one that wins first."""

_LONG = re.compile(rb"[+-]?[0-9]{1,19}")
_LONG_MAX = (1 << 63) - 1


def asked_ms(key: bytes, value: bytes, now_ms: int) -> int | None:
    """The time that one of the three properties asks for; None: its value is no whole number."""
    if not _LONG.fullmatch(value) or not -_LONG_MAX <= (number := int(value)) <= _LONG_MAX:
        return None
    if key == DELIVER_MS:
        return number
    return now_ms + number * (1_000 if key == DELAY_SEC else 1)


def slot_of(due_ms: int, precision_ms: int) -> int:
    """The last slot that is delivered at or after `due_ms`, and less than a precision later."""
    return (due_ms - 1) // precision_ms * precision_ms


def rolled_slot(slot_ms: int, now_ms: int, window_slots: int, precision_ms: int) -> int | None:
    """The slot in which a timer beyond the window waits before its own; None: it is within.

    Half a window ahead where it would otherwise soon have to be moved again.
    """
    now_ms = now_ms // precision_ms * precision_ms
    window_ms = window_slots * precision_ms
    beyond_ms = slot_ms - now_ms - window_ms
    if beyond_ms < 0:
        return None
    is_near = beyond_ms < window_slots // 3 * precision_ms
    return now_ms + (window_slots // 2 * precision_ms if is_near else window_ms)
