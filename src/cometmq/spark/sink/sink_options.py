"""The options of `format("rocketmq")` for writes: from Spark's texts to one frozen value.

Owns the names, defaults and limits; which columns a row may have is in `row_columns`.
Invariant: what is wrong without asking a broker is refused here, before a task starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.rules.name_validation import group_name_problem, topic_name_problem
from cometmq.spark.connection_security import SECURITY_OPTIONS, security_of
from cometmq.spark.option_reader import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.spark.connection_security import ConnectionSecurity

DEFAULT_GROUP = "cometmq_spark_sink"

OPTIONS = (
    "namesrv",
    "topic",
    "group",
    "ignoreColumns",
    "maxInFlight",
    "retryForMs",
    "rejectedPath",
    *SECURITY_OPTIONS,
    "checkpointLocation",
    "queryName",
)
"""Every option of a write; the last two are Spark's own, which gives sinks what streams get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What the user asked for, checked. Plain values only: it is pickled to the tasks."""

    namesrv: tuple[str, ...]
    security: ConnectionSecurity
    topic: str
    """Where every row goes; empty: the row's column says so."""
    group: str
    ignored: tuple[str, ...]
    """Columns that are left out."""
    max_in_flight: int
    """Most messages of one task that are being made or wait for their answers."""
    retry_for_ms: int
    rejected_path: str
    """The directory for rows that cannot be sent; empty: such a row fails the write."""


def parse(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write; raises SettingsError with a sentence about the first fault."""
    texts = OptionReader(given, OPTIONS)
    topic, group = texts.text("topic"), texts.text("group", DEFAULT_GROUP)
    problem = (topic_name_problem(topic) if topic else None) or group_name_problem(group)
    if problem:
        raise SettingsError(f'an option of the write to format("rocketmq") is wrong: {problem}')
    return SinkOptions(
        namesrv=texts.addresses("namesrv", "NAMESRV_ADDR"),
        security=security_of(texts),
        topic=topic,
        group=group,
        ignored=texts.names("ignoreColumns"),
        max_in_flight=texts.whole("maxInFlight", 16_384, least=1),
        retry_for_ms=texts.whole("retryForMs", 60_000, least=1),
        rejected_path=_directory(texts.text("rejectedPath")),
    )


def _directory(text: str) -> str:
    """The absolute path of a directory on a mounted file system; empty for none."""
    scheme, separator, rest = text.partition(":/")
    if separator and scheme.isalnum() and scheme.lower() != "file":
        raise SettingsError(
            f"the option rejectedPath is {text!r}; it must be a directory that driver and "
            "executors see under the same path, such as a mounted one: Spark does not write it"
        )
    if separator and scheme.lower() == "file":
        text = "/" + rest.lstrip("/")
    return str(Path(text).absolute()) if text else ""
