"""The columns a row of the data source may have: their names, their Spark types, their Arrow types.

Owns which columns exist, which are the default, and the schema in two forms (DDL for Spark's
planner, Arrow for the workers, which have no DDL parser). `arrow_batches` has the values.
Invariant: both forms describe the same schema, and every column may be null.
Imports only the standard library, because every process that looks up data sources loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

DDL_TYPES: dict[str, str] = {
    "topic": "string",
    "broker": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "msg_id": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "born_ts": "timestamp",
    "store_ts": "timestamp",
    "reconsume_times": "int",
    "sharding_key": "string",
    "phy_offset": "bigint",
    "record": "binary",
}
"""Every column in the order of the schema, with its type in Spark's DDL."""

PLACE = ("topic", "broker", "queue_id", "queue_offset")
"""The columns that say where a message lies: no two messages have the same."""

DEFAULT: tuple[str, ...] = tuple(
    name for name in DDL_TYPES if name not in {"properties", "sharding_key", "phy_offset", "record"}
)
"""What is delivered when neither `columns` nor `includeProperties` says otherwise."""


def ddl(columns: Sequence[str]) -> str:
    """The schema of these columns as Spark's DDL."""
    return ", ".join(f"{name} {DDL_TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns as Arrow, equal to what Spark makes of `ddl(columns)`."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[DDL_TYPES[name]]) for name in columns])
