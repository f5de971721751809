"""Which columns of a row become what of a message.

Owns the names and types that the sink takes, and whether a row says where it was read (its origin).
Invariant: every column of a row has a meaning or was left out by name; none is ignored in silence.
Imports only the standard library, because processes without Arrow plan a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.source.columns import PLACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.spark.sink.sink_options import SinkOptions

_WHOLE = ("int", "bigint", "smallint", "tinyint")
TYPES: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "broker": ("string",),
    "queue_id": _WHOLE,
    "queue_offset": _WHOLE,
    "delay_level": _WHOLE,
    "origin": ("struct<topic:string,broker:string,queue_id:int,queue_offset:bigint>",),
}
"""The columns of a row that is written, and the types that each may have, as Spark writes them."""
REJECTED = "rejected"
"""What the table of rejected rows has beside the columns of a row."""
ORIGIN_COLUMNS = PLACE
"""Where the source read a row: columns of the row, or fields of its column `origin`."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns in use. With `is_read`, `ORIGIN_COLUMNS` of the row itself are its origin."""

    names: frozenset[str]
    is_read: bool


def row_columns(types: Mapping[str, str], options: SinkOptions) -> RowColumns:
    """Check the columns of a frame against the options; raises SettingsError.

    `types` are Spark's simple texts by the name of the column.
    """
    absent = [name for name in options.ignored if name not in types]
    if absent:
        raise SettingsError(
            f"ignoreColumns names {', '.join(absent)}: the rows have no such column"
        )
    if options.rejected_path and REJECTED in types:
        raise SettingsError(
            f"the rows have a column {REJECTED}, which the table of rejectedPath adds: drop it"
        )
    used = {name: kind for name, kind in types.items() if name not in options.ignored}
    unknown = [name for name in used if name not in TYPES]
    if unknown:
        raise SettingsError(
            f"the sink does not know the columns {', '.join(unknown)}: drop or rename them, or "
            f"name them in the option ignoreColumns (it takes {', '.join(TYPES)})"
        )
    for name, kind in used.items():
        if kind not in TYPES[name]:
            raise SettingsError(
                f"the column {name} is {kind}; to be written it must be {' or '.join(TYPES[name])}"
            )
    if "body" not in used:
        raise SettingsError("the rows have no column body, the bytes or text of the message")
    return RowColumns(frozenset(used), _is_read(used, options))


def _is_read(used: Mapping[str, str], options: SinkOptions) -> bool:
    """Whether the rows come from the source as they are; checks what says where they go."""
    is_read = "queue_offset" in used
    if is_read:
        if "origin" in used:
            raise SettingsError("a row has a column origin or a column queue_offset, not both")
        missing = [name for name in ORIGIN_COLUMNS if name not in used]
        if missing:
            raise SettingsError(
                "queue_offset is a part of where a row was read, and the rest is missing: select "
                f"{', '.join(missing)} as well, or name queue_offset in ignoreColumns"
            )
    if not options.topic and (is_read or "topic" not in used):
        where = "where they were read, not where they go" if is_read else "no column topic"
        raise SettingsError(f"the option topic is missing, and the rows have {where}")
    if "broker" in used and "queue_id" not in used:
        raise SettingsError("the column broker says whose queue queue_id is, and that is missing")
    return is_read
