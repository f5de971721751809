"""The options of `format("rocketmq")`: from Spark's texts to one frozen value.

Owns their names, defaults, limits and error messages. An offset option becomes an `OffsetBound`;
`cluster_client` resolves it.
Invariant: an unknown option is an error that names the nearest known one; it is never ignored.
Option names ignore case, because Spark passes them in lower case.
"""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.source import columns as known_columns
from cometmq.spark.source.offset_planning import parse_offset_key

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS_VARIABLE = "COMETMQ_SPARK_SLOTS"
"""Set by `spark_session`: how many tasks run at once. Planner and workers cannot ask Spark."""

_NAMES = (
    "namesrv",
    "topic",
    "group",
    "tags",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "slots",
    "columns",
    "includeProperties",
    "failOnDataLoss",
    "failOnMissingTopic",
    "idleWaitMs",
    "timeoutMs",
    "retryForMs",
)


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where reading starts or ends: the ends of the queues, a time, or an offset for each queue."""

    kind: str
    """`earliest`, `latest`, `time` or `exact`."""
    time_ms: int = 0
    offsets: tuple[tuple[str, int], ...] = ()


EARLIEST = OffsetBound("earliest")
LATEST = OffsetBound("latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the user asked for, checked. Plain values only: it is pickled to the tasks."""

    namesrv: tuple[str, ...]
    topic: str
    group: str
    tags: str
    starting: OffsetBound | None
    ending: OffsetBound | None
    max_offsets: int | None
    slots: int
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    fail_on_missing_topic: bool
    idle_wait_ms: int
    timeout_ms: int
    retry_for_ms: int


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a read; raises SettingsError with one sentence about the first fault."""
    options = {key.lower(): value for key, value in given.items()}
    _refuse_unknown(options)
    topic = options.get("topic", "").strip()
    if not topic:
        raise SettingsError('format("rocketmq") needs the option topic, the topic to read')
    max_offsets = _whole(options, "maxOffsetsPerTrigger", 400_000, least=0)
    return SourceOptions(
        namesrv=_namesrv(options),
        topic=topic,
        group=options.get("group", "").strip() or "cometmq_spark",
        tags=options.get("tags", "").strip() or "*",
        starting=_bound(options, "startingOffsets"),
        ending=_bound(options, "endingOffsets"),
        max_offsets=max_offsets or None,
        slots=_whole(options, "slots", default_slots(), least=1),
        columns=_columns(options),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        fail_on_missing_topic=_flag(options, "failOnMissingTopic", default=True),
        idle_wait_ms=_whole(options, "idleWaitMs", 100, least=0),
        timeout_ms=_whole(options, "timeoutMs", 10_000, least=1),
        retry_for_ms=_whole(options, "retryForMs", 60_000, least=0),
    )


def default_slots() -> int:
    """The default number of partitions: that of `spark_session`, else the cores, at most 8."""
    text = os.environ.get(SLOTS_VARIABLE, "")
    return int(text) if text.isdecimal() and int(text) > 0 else min(os.cpu_count() or 2, 8)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    names = {name.lower(): name for name in _NAMES}
    for key in options:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {names[near[0]]}" if near else f"known are {', '.join(_NAMES)}"
            raise SettingsError(f'format("rocketmq") has no option {key}: {hint}')


def _namesrv(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("namesrv", "") or os.environ.get("NAMESRV_ADDR", "")
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    if not addresses:
        raise SettingsError(
            'format("rocketmq") needs the option namesrv, the addresses of the name servers '
            "(for example 127.0.0.1:9876; several are separated by ;)"
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise SettingsError(f"the option namesrv holds {address!r}, which is no host:port")
    return addresses


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    asked = options.get("columns", "")
    with_properties = _flag(options, "includeProperties", default=False)
    chosen = [part.strip() for part in asked.split(",") if part.strip()]
    for name in chosen:
        if name not in known_columns.DDL_TYPES:
            near = difflib.get_close_matches(name, known_columns.DDL_TYPES, n=1)
            hint = f"did you mean {near[0]}" if near else "the guide lists the columns"
            raise SettingsError(f"the option columns names {name}, which is no column: {hint}")
    wanted = set(chosen or known_columns.DEFAULT)
    if with_properties:
        wanted.add("properties")
    return tuple(name for name in known_columns.DDL_TYPES if name in wanted)


def _bound(options: Mapping[str, str], name: str) -> OffsetBound | None:
    text = options.get(name.lower(), "").strip()
    if not text:
        return None
    if text.lower() in {"earliest", "latest"}:
        return OffsetBound(text.lower())
    if text.isdecimal():
        return OffsetBound("time", time_ms=int(text))
    if text.startswith("{"):
        return OffsetBound("exact", offsets=_exact(name, text))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"the option {name} is {text!r}: write earliest, latest, a time (milliseconds since "
            '1970 or ISO 8601, UTC unless it says otherwise), or JSON such as {"broker-a:0": 17}'
        ) from None
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return OffsetBound("time", time_ms=round(aware.timestamp() * 1000))


def _exact(name: str, text: str) -> tuple[tuple[str, int], ...]:
    """Offsets from JSON; -2 and -1 stay as they are and mean earliest and latest, as with Kafka."""
    try:
        value = json.loads(text)
        pairs = [(key, value[key]) for key in sorted(value)]
        for key, _ in pairs:
            parse_offset_key(key)
    except ValueError as fault:
        raise SettingsError(f"the option {name} is no map of offsets: {fault}") from None
    for key, offset in pairs:
        if type(offset) is not int or offset < -2:
            raise SettingsError(
                f"the option {name} gives {key} the offset {offset!r}: use a whole number, "
                "-2 for earliest or -1 for latest"
            )
    return tuple(pairs)


def _whole(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = options.get(name.lower(), "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise SettingsError(f"the option {name} is {text!r}, not a whole number from {least} up")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), "").strip().lower()
    if text in {"", "true", "false"}:
        return default if not text else text == "true"
    raise SettingsError(f"the option {name} is {text!r}: write true or false")
