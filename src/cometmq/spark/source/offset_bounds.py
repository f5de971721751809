"""Where a read starts and ends: offsets, times, or the ends of the queues, from the options.

Owns `startingOffsets`, `endingOffsets`, `startingTimestamp`, `endingTimestamp`,
`startingOffsetsByTimestamp`, `endingOffsetsByTimestamp` and the check that a start lies in the
past. What a bound means at a broker is found by `bound_resolution`.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError
from cometmq.spark.source import planned_offsets
from cometmq.spark.source.topic_selection import numbers_by_queue, queue_key

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.option_reader import OptionReader
    from cometmq.spark.source.topic_selection import TopicSelection

OPTIONS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""Offsets in JSON that mean the ends of a queue, as with Kafka."""


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where reading starts or ends."""

    kind: str
    """`earliest`, `latest`, `time`, `offsets` or `times`."""
    time_ms: int = 0
    """The store time of all queues, for `time`."""
    numbers: tuple[tuple[MessageQueue, int], ...] = ()
    """Offsets or store times of some queues."""
    last_store_ms: int = 0
    """With offsets that a query planned: when the newest message before them was stored."""


EARLIEST = OffsetBound("earliest")
LATEST = OffsetBound("latest")


def starting_bound(texts: OptionReader, selection: TopicSelection) -> OffsetBound | None:
    """The start that the options name, if one does; raises SettingsError.

    A time that is still to come is refused, or with `startingOffsetsByTimestampStrategy` `latest`
    stands for the end of the queues.
    """
    strategy = texts.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    bound = _bound(texts, selection, "starting")
    if bound is None or bound.kind not in {"time", "times"}:
        return bound
    now_ms = time.time_ns() // 1_000_000
    if strategy == "latest":
        if bound.kind == "time":
            return bound if bound.time_ms <= now_ms else LATEST
        capped = tuple((queue, at if at <= now_ms else now_ms) for queue, at in bound.numbers)
        return replace(bound, numbers=capped)
    times = [at for _, at in bound.numbers] or [bound.time_ms]
    if max(times) > now_ms:
        raise SettingsError(
            f"the start {_iso(max(times))} lies in the future: give an earlier one, or set "
            "startingOffsetsByTimestampStrategy=latest to start at the end of the topic"
        )
    return bound


def ending_bound(texts: OptionReader, selection: TopicSelection) -> OffsetBound | None:
    """The end that the options name, if one does; raises SettingsError."""
    return _bound(texts, selection, "ending")


def require_order(starting: OffsetBound | None, ending: OffsetBound | None) -> None:
    """Refuse a start that lies after the end whatever the topic holds."""
    if starting is None or ending is None:
        return
    wrong = (starting.kind, ending.kind) == ("latest", "earliest")
    if starting.kind == ending.kind == "time":
        wrong = starting.time_ms > ending.time_ms
    if wrong:
        raise SettingsError("the start of this read lies after its end: exchange the two options")


def _bound(texts: OptionReader, selection: TopicSelection, side: str) -> OffsetBound | None:
    offsets, by_time = f"{side}Offsets", f"{side}OffsetsByTimestamp"
    given = texts.one_of(offsets, f"{side}Timestamp", by_time)
    text = texts.text(given) if given else ""
    if not given:
        return None
    if given == by_time:
        return _numbers(given, text, selection, least=0)
    if given != offsets:
        return OffsetBound("time", time_ms=_time(given, text))
    if text.lower() in {"earliest", "latest"}:
        return OffsetBound(text.lower())
    if text.startswith("{"):
        return _numbers(given, text, selection, least=EARLIEST_NUMBER)
    bound = OffsetBound("time", time_ms=_time(given, text))
    warnings.warn(
        f"a time in {given} is deprecated: write it as {side}Timestamp", FutureWarning, stacklevel=2
    )
    return bound


def _time(name: str, text: str) -> int:
    """Milliseconds since 1970 from a number or ISO 8601, UTC unless it says otherwise."""
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        other = "" if name.endswith("Timestamp") else "earliest, latest, offsets in JSON, or "
        raise SettingsError(
            f"the option {name} is {text!r}: write {other}a time (milliseconds since 1970 "
            "or ISO 8601, UTC unless it says otherwise)"
        ) from None
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _numbers(name: str, text: str, selection: TopicSelection, *, least: int) -> OffsetBound:
    """Offsets or times by queue, also in the form in which Spark's progress shows them."""
    last_store_ms = 0
    try:
        value = json.loads(text)
        if least < 0 and planned_offsets.has_version(value):
            planned = planned_offsets.decode(value, selection.only_topic)
            last_store_ms = planned.last_store_ms
            pairs: list[tuple[MessageQueue, Any]] = sorted(planned.queues.items())
        else:
            pairs = list(numbers_by_queue(value, selection.only_topic))
    except ValueError as fault:
        raise SettingsError(f"the option {name} cannot be read: {fault}") from None
    for queue, number in pairs:
        if type(number) is not int or number < least:
            special = ", -2 for earliest or -1 for latest" if least < 0 else ""
            raise SettingsError(
                f"the option {name} gives {queue_key(queue)} of topic {queue.topic} the number "
                f"{number!r}: use a whole number from 0 up{special}"
            )
        if not selection.covers(queue):
            raise SettingsError(
                f"the option {name} names {queue_key(queue)} of topic {queue.topic}, "
                f"but what is read is {selection}"
            )
    kind = "offsets" if least < 0 else "times"
    return OffsetBound(kind, numbers=tuple(pairs), last_store_ms=last_store_ms)


def _iso(time_ms: int) -> str:
    """The time in ISO 8601; what no calendar has is in no milliseconds."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} (milliseconds since 1970?)"
