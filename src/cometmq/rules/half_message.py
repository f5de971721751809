"""Half messages: when the broker checks back with their producer, and which have ended.

Decides about one half message, and remembers the ends that op messages report. Time is an argument.
A half message is identified by its offset in the half queue; each check-back stores a copy, with an
offset of its own.
Invariant: an offset that has ended stays so until the window moves past it.
Java: TransactionalMessageServiceImpl.check, EndTransactionProcessor.rejectCommitOrRollback.
"""

from __future__ import annotations

from enum import Enum

SPAN_MAX = 1 << 23
"""Longest window of ends after the first open half message, in offsets (one byte each)."""

_MS = 1_000


class CheckDecision(Enum):
    """What the check does with a half message that has not ended."""

    DISCARD = "checked too often, or too old"
    TOO_YOUNG = "its producer may still be working, as may those of all later ones"
    IMMUNE = "its producer asked for a longer time"
    ASK = "its producer is asked"


def decide_check(
    *,
    age_ms: int,
    asked: int,
    immunity: bytes | None,
    timeout_ms: int,
    checks_max: int,
    reserved_ms: int,
) -> CheckDecision:
    """Decide on a half message born `age_ms` ago, whose producer was asked `asked` times.

    `immunity` is the text of CHECK_IMMUNITY_TIME_IN_SECONDS. An age below 0 means that the clocks
    differ: then the producer is asked at once.
    """
    assert asked >= 0, "a count of questions is not negative"
    if asked >= checks_max or age_ms > reserved_ms:
        return CheckDecision.DISCARD
    if immunity is not None:
        return (
            CheckDecision.IMMUNE
            if age_ms <= _immunity_ms(immunity, timeout_ms)
            else CheckDecision.ASK
        )
    return CheckDecision.TOO_YOUNG if 0 <= age_ms <= timeout_ms else CheckDecision.ASK


def is_end_too_late(age_ms: int, immunity: bytes | None, timeout_ms: int) -> bool:
    """Whether an end without a check-back comes after the time that its producer asked for."""
    if not immunity:
        return False
    return age_ms > max(_immunity_ms(immunity, 0), timeout_ms)


def parse_op_body(body: bytes) -> list[int]:
    """The half offsets that an op message names; anything else in it is ignored."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) < 19]


def encode_op_body(offsets: list[int]) -> bytes:
    """The body of an op message: these half offsets have ended."""
    assert all(offset >= 0 for offset in offsets), "a half offset is not negative"
    return b"".join([b"%d," % offset for offset in offsets])


def _immunity_ms(text: bytes, otherwise_ms: int) -> int:
    is_number = text.isdigit() and len(text) < 12
    return int(text) * _MS if is_number else otherwise_ms


class EndedHalfMessages:
    """Which offsets at and after `first` have ended: a window of one byte each."""

    __slots__ = ("_marks", "first")

    def __init__(self, first: int) -> None:
        assert first >= 0, "the half queue begins at offset 0"
        self.first = first
        self._marks = bytearray()

    def add(self, offset: int) -> None:
        """Note an end; offsets before the window, or beyond `SPAN_MAX`, are not kept."""
        at = offset - self.first
        if not 0 <= at < SPAN_MAX:
            return
        missing = at + 1 - len(self._marks)
        if missing > 0:
            self._marks += bytes(missing)
        assert at < len(self._marks) <= SPAN_MAX, "the window has a mark for each of its offsets"
        self._marks[at] = 1

    def __contains__(self, offset: int) -> bool:
        """Whether the offset is in the window and has ended."""
        at = offset - self.first
        return 0 <= at < len(self._marks) and self._marks[at] == 1

    def move_to(self, first: int) -> None:
        """Forget everything before `first`, which is not before the window."""
        assert first >= self.first, "the window of ended half messages only moves forward"
        del self._marks[: first - self.first]
        self.first = first
