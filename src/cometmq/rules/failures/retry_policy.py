"""What follows a failure: a retry, a pause, or a dead letter and the reason in it.

Pure decisions; time is an argument. Invariant: the reason of a dead letter never contains a byte
that separates properties.
Java: ConsumeMessageOrderlyService.checkReconsumeTimes, DefaultMQPushConsumerImpl.sendMessageBack
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.model.group import GroupRetryPolicy

REASON_CHARS_MAX = 512
SUSPEND_MS_MIN, SUSPEND_MS_MAX = 10, 30_000
RECONSUME_TIMES_MAX = 16
"""Retries of a concurrent group that sets no maximum."""
UNLIMITED = 2_147_483_647


def reconsume_times_max(max_attempts: int | None, *, orderly: bool) -> int:
    """How often a message may be delivered again, without the first delivery."""
    assert max_attempts is None or max_attempts > 0, "the first delivery is an attempt"
    if max_attempts is not None:
        return max_attempts - 1
    return UNLIMITED if orderly else RECONSUME_TIMES_MAX


def queue_block_s_max(max_attempts: int | None, pause_ms: int) -> float | None:
    """How long a message that always fails may block an orderly queue; None: for ever.

    The sum of the pauses between attempts, without the time of the handler.
    """
    assert max_attempts is None or max_attempts > 0, "the first delivery is an attempt"
    return None if max_attempts is None else (max_attempts - 1) * clamp_suspend_ms(pause_ms) / 1000


def attempts_exhausted(reconsume_times: int, times_max: int) -> bool:
    """Whether a message that failed now has used all its attempts."""
    return reconsume_times >= times_max


def clamp_suspend_ms(asked_ms: int) -> int:
    """How long an orderly queue pauses after a failure: as asked, between 10 ms and 30 s."""
    return min(max(asked_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)


def backoff_s(failures: int, first_s: float, most_s: float) -> float:
    """The pause after so many failures in a row (at least 1): it doubles, up to `most_s`."""
    assert failures > 0, "a pause follows a failure"
    assert min(first_s, most_s) >= 0, "a pause is not negative"
    return min(first_s * 2.0 ** min(failures - 1, 30), most_s)


def retry_delay_level(asked: int, reconsume_times: int) -> int:
    """The delay level of the next attempt: what was asked, else 3 + the failures so far."""
    return asked if asked > 0 else 3 + reconsume_times


def policy_delay_ms(policy: GroupRetryPolicy, reconsume_times: int) -> int | None:
    """The pause before the next attempt by a group's policy; None if the delay levels apply.

    EXPONENTIAL: the first pause times the multiplier for each earlier failure, at most the maximum.
    CUSTOMIZED: from the list; the last entry counts for all later attempts.
    """
    times = max(reconsume_times, 0)
    if policy.type == "EXPONENTIAL":
        factor: int = policy.multiplier ** min(times, 32)
        return min(policy.max_ms, policy.initial_ms * factor)
    steps = policy.next_ms
    # Java: CustomizedRetryPolicy.nextDelayDuration begins with the third entry, too.
    return steps[min(times + 2, len(steps) - 1)] if steps else None


def dead_letter_reason(kind: str, text: str) -> str:
    """The reason in a dead letter: the error's type and text, at most 512 characters."""
    sentence = f"{kind}: {text}" if text else kind
    clean = "".join(sign if sign.isprintable() else " " for sign in sentence)
    return clean[:REASON_CHARS_MAX].strip()
