"""The options of `format("rocketmq")` for reads: from Spark's texts to one frozen value.

Owns the names, defaults and limits. What is read is in `topic_selection`, where a read starts and
ends in `offset_bounds`.
Invariant: what is wrong without asking a broker is refused here, and so when `load()` is called.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import BadFilter, SettingsError
from cometmq.model.topic import retry_topic_of
from cometmq.rules.filters import sql92_parser
from cometmq.rules.filters.tag_expressions import expression_problem
from cometmq.spark.connection_security import SECURITY_OPTIONS, security_of
from cometmq.spark.option_reader import OptionReader
from cometmq.spark.source import columns as known_columns
from cometmq.spark.source import offset_bounds, topic_selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.spark.connection_security import ConnectionSecurity
    from cometmq.spark.source.offset_bounds import OffsetBound
    from cometmq.spark.source.topic_selection import TopicSelection

SLOTS_VARIABLE = "COMETMQ_SPARK_SLOTS"
"""Set by `spark_session`: how many tasks run at once. Planner and workers cannot ask Spark."""

DEFAULT_GROUP = "cometmq_spark"
RETRY_FOR_MS = 60_000
"""The default of `retryForMs`."""

OPTIONS = (
    "namesrv",
    "brokers",
    *topic_selection.OPTIONS,
    "group",
    "tags",
    "sql",
    *offset_bounds.OPTIONS,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "slots",
    "minPartitions",
    "maxRecordsPerPartition",
    "columns",
    "includeBody",
    "includeProperties",
    "commitOffsets",
    "failOnDataLoss",
    "failOnMissingTopic",
    "idleWaitMs",
    "timeoutMs",
    "retryForMs",
    *SECURITY_OPTIONS,
)
"""Every option of a read."""
_OF_STREAMS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "idleWaitMs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the user asked for, checked. Plain values only: it is pickled to the tasks."""

    namesrv: tuple[str, ...]
    security: ConnectionSecurity
    brokers: tuple[str, ...]
    """Brokers that must be asked, though name servers may have forgotten them."""
    selection: TopicSelection
    group: str
    tags: str
    sql: str
    starting: OffsetBound | None
    ending: OffsetBound | None
    max_offsets: int
    """Most messages of a micro-batch; 0 is no limit, as for the limits that follow."""
    min_offsets: int
    max_trigger_delay_ms: int
    max_bytes: int
    slots: int
    min_partitions: int
    max_records_per_partition: int
    columns: tuple[str, ...]
    commit_offsets: bool
    fail_on_data_loss: bool
    fail_on_missing_topic: bool
    idle_wait_ms: int
    timeout_ms: int
    retry_for_ms: int

    @property
    def retry_topic(self) -> str:
        """The retry topic of the group.

        What is in it was wanted, so no filter applies; it comes with the first message sent back.
        """
        return retry_topic_of(self.group)

    def filter_of(self, topic: str) -> tuple[str, str]:
        """The tags and the SQL condition by which the messages of a topic are filtered."""
        return ("*", "") if topic == self.retry_topic else (self.tags, self.sql)


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a read; raises SettingsError with one sentence about the first fault."""
    texts = OptionReader(given, OPTIONS)
    selected = topic_selection.parse(texts)
    starting = offset_bounds.starting_bound(texts, selected)
    ending = offset_bounds.ending_bound(texts, selected)
    offset_bounds.require_order(starting, ending)
    texts.one_of("tags", "sql")
    parsed = SourceOptions(
        namesrv=texts.addresses("namesrv", "NAMESRV_ADDR"),
        security=security_of(texts),
        brokers=texts.names("brokers"),
        selection=selected,
        group=texts.text("group", DEFAULT_GROUP),
        tags=texts.text("tags", "*"),
        sql=texts.text("sql"),
        starting=starting,
        ending=ending,
        max_offsets=texts.whole("maxOffsetsPerTrigger", 400_000, least=0),
        min_offsets=texts.whole("minOffsetsPerTrigger", 0, least=0),
        max_trigger_delay_ms=texts.duration_ms("maxTriggerDelay", "15m"),
        max_bytes=texts.whole("maxBytesPerTrigger", 0, least=0),
        slots=texts.whole("slots", default_slots(), least=1),
        min_partitions=texts.whole("minPartitions", 0, least=0),
        max_records_per_partition=texts.whole("maxRecordsPerPartition", 0, least=0),
        columns=_columns(texts),
        commit_offsets=texts.flag("commitOffsets", default=False),
        fail_on_data_loss=texts.flag("failOnDataLoss", default=True),
        fail_on_missing_topic=texts.flag("failOnMissingTopic", default=True),
        idle_wait_ms=texts.whole("idleWaitMs", 100, least=0),
        timeout_ms=texts.whole("timeoutMs", 10_000, least=1),
        retry_for_ms=texts.whole("retryForMs", RETRY_FOR_MS, least=0),
    )
    _check_filter(parsed)
    _check_combinations(parsed, texts)
    return parsed


def without_effect_in_batch(given: Mapping[str, str]) -> tuple[str, ...]:
    """The given options that only a stream obeys."""
    texts = OptionReader(given, OPTIONS)
    return tuple(name for name in _OF_STREAMS if texts.has(name))


def default_slots() -> int:
    """The default number of partitions: that of `spark_session`, else the cores, at most 8."""
    text = os.environ.get(SLOTS_VARIABLE, "")
    return int(text) if text.isdecimal() and int(text) > 0 else min(os.cpu_count() or 2, 8)


def _check_filter(parsed: SourceOptions) -> None:
    problem = expression_problem(parsed.tags)
    if problem:
        raise SettingsError(f"the option tags is {parsed.tags!r}: {problem}")
    if parsed.sql:
        try:
            sql92_parser.parse(parsed.sql)
        except BadFilter as fault:
            raise SettingsError(f"the option sql is {parsed.sql!r}: {fault}") from None


def _check_combinations(parsed: SourceOptions, texts: OptionReader) -> None:
    if parsed.commit_offsets and not texts.has("group"):
        raise SettingsError(
            "commitOffsets=true needs the option group: queries that commit under one name would "
            "overwrite each other's offsets"
        )
    if parsed.max_offsets and parsed.min_offsets > parsed.max_offsets:
        raise SettingsError(
            f"minOffsetsPerTrigger is {parsed.min_offsets}, more than maxOffsetsPerTrigger allows, "
            f"which is {parsed.max_offsets}"
        )
    if texts.has("maxTriggerDelay") and not parsed.min_offsets:
        raise SettingsError("maxTriggerDelay has no effect without minOffsetsPerTrigger")


def _columns(texts: OptionReader) -> tuple[str, ...]:
    chosen = texts.names("columns")
    for name in chosen:
        if name not in known_columns.DDL_TYPES:
            near = difflib.get_close_matches(name, known_columns.DDL_TYPES, n=1)
            hint = f"did you mean {near[0]}" if near else "the guide lists the columns"
            raise SettingsError(f"the option columns names {name}, which is no column: {hint}")
    wanted = set(chosen or known_columns.DEFAULT)
    if texts.flag("includeProperties", default=False):
        wanted.add("properties")
    if not texts.flag("includeBody", default=True):
        if "body" in chosen:
            raise SettingsError("columns names body, and includeBody=false leaves it out")
        wanted.discard("body")
    return tuple(name for name in known_columns.DDL_TYPES if name in wanted)
