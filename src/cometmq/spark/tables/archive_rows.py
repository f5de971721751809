"""The rows of an archive: the columns of a message, its JSON by a schema, and what doesn't fit.

Owns columns, schema, partition, and the reasons of misfits. Works on any frame of the source.
Invariant: a message is a row or a misfit, never both and never neither; a misfit keeps its body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError
from cometmq.spark.source.columns import DDL_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

VALUE, CHECKSUM, REASON = "value", "body_crc32", "reason"
"""Columns that the source doesn't have: the parsed body, its checksum, why a misfit is one."""

_DAY = "cast(date_from_unix_date(cast(floor(unix_seconds(store_ts) / 86400) AS int)) AS string)"
_HOUR = "lpad(cast(pmod(floor(unix_seconds(store_ts) / 3600), 24) AS string), 2, '0')"
PARTITIONS = {
    "day": f"{_DAY} AS day",
    "hour": f"concat({_DAY}, '-', {_HOUR}) AS hour",
    "none": "",
}
"""Partitions by name, in Spark's SQL: in UTC, whatever the time zone of the session."""

_GATHERED_PARTS = 128
"""Parts among which rows are divided before small ones are joined and large ones are cut."""

_BAD = "_not_parsed"
_SPACE = " \t\r\n"
"""What JSON lets stand around a value."""
_STRICT = {
    "columnNameOfCorruptRecord": _BAD,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """What an archive makes of messages; the same in every run of one table."""

    schema: str | None = None
    """Fields of the JSON body as Spark's DDL; None keeps bodies as they are."""
    partition: str = "day"
    """A name of PARTITIONS, or an expression with an alias over the columns of a row."""
    keep_body: bool = False
    """With a schema, keep the body beside its fields."""

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run."""
        return {
            "schema": self.schema,
            "partition": self.partition,
            "keep_body": self.keep_body,
        }

    @property
    def source_columns(self) -> tuple[str, ...]:
        """What must be read: all, but for the whole record, which repeats it."""
        return tuple(name for name in DDL_TYPES if name != "record")

    @property
    def may_misfit(self) -> bool:
        """Whether there can be misfits."""
        return self.schema is not None

    def shaped(self, frame: DataFrame) -> DataFrame:
        """All columns of rows and misfits; `reason` is null for a row. Raises SettingsError."""
        from pyspark.sql import functions as f

        made = frame.withColumn(CHECKSUM, f.crc32("body"))
        if self.schema is None:
            return made.withColumn(REASON, f.lit(None).cast("string"))
        text = f.col("body").cast("string")
        parsed = f.from_json(text, _fields(self.schema).add(_BAD, "string"), _STRICT)
        made = made.withColumn(VALUE, parsed)
        made = made.withColumn(REASON, _reason(text, _fields(self.schema)))
        return made.withColumn(VALUE, f.col(VALUE).dropFields(_BAD))

    def rows(self, shaped: DataFrame) -> DataFrame:
        """The messages that fit, with the partition's column last."""
        frame = shaped.where(f"{REASON} IS NULL").drop(REASON)
        if self.schema is not None and not self.keep_body:
            frame = frame.drop("body")
        expression = PARTITIONS.get(self.partition, self.partition)
        if not expression:
            return frame
        made = frame.selectExpr("*", expression)
        if made.columns[-1] in frame.columns:
            raise SettingsError(
                f"the partition {self.partition!r} is called {made.columns[-1]}, as a column of "
                "the table is: give it another name, as in `to_date(value.time) AS day`"
            )
        return made if self.partition in PARTITIONS else _gathered(made)

    def partition_columns(self, rows: DataFrame) -> list[str]:
        """The names that Spark partitions by: one, or none."""
        return [] if self.partition == "none" else [rows.columns[-1]]

    def misfits(self, shaped: DataFrame) -> DataFrame:
        """The messages that do not fit, each with its reason and its body."""
        frame = shaped.where(f"{REASON} IS NOT NULL")
        return frame.drop(VALUE) if VALUE in frame.columns else frame


def _gathered(rows: DataFrame) -> DataFrame:
    """The rows of a partition in one task, or in few where they are many: each writes a file.

    By store time that is so already: a queue is read in its order.
    """
    return rows.hint("rebalance", _GATHERED_PARTS, rows.columns[-1])


def _fields(schema: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        fields = StructType.fromDDL(schema)
    except (PySparkException, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise SettingsError(
            f"the schema {schema!r} is no DDL of Spark, such as 'name string, amount int': {first}"
        ) from error
    if _BAD in fields.fieldNames():
        raise SettingsError(f"the schema may not have a field {_BAD}")
    return fields


def _reason(text: Column, fields: StructType) -> Column:
    """Why a body is a misfit; null when it fits."""
    from pyspark.sql import functions as f

    value = f.col(VALUE)
    wrong = [
        f.when(value[name].isNull() & f.get_json_object(text, f"$['{name}']").isNotNull(), name)
        for name in fields.fieldNames()
    ]
    missing = [f.when(value[one.name].isNull(), one.name) for one in fields if not one.nullable]
    lacks = f.concat_ws(", ", *missing) if missing else f.lit("")
    is_one = _is_one_value(text)
    is_parsed = value.isNotNull() & value[_BAD].isNull()
    fits = is_parsed & (_ends_with_its_only_brace(text) | is_one) & f.is_valid_utf8("body")
    fits &= lacks == ""
    return (
        f.when(fits, None)
        .when(f.col("body").isNull(), "the message has no readable body")
        .when(~f.is_valid_utf8("body"), "the body is not UTF-8")
        .when(f.try_parse_json(text).isNull(), "the body is not JSON, or has a key twice")
        .when(f.json_object_keys(text).isNull(), "the body is no JSON object")
        .when(~f.coalesce(is_one, f.lit(False)), "the body goes on behind its JSON")
        .when(value[_BAD].isNull(), f.concat(f.lit("lacks "), lacks))
        .otherwise(
            f.concat_ws(
                ": ",
                f.lit("does not fit the schema"),
                f.nullif(f.concat_ws(", ", *wrong), f.lit("")),
            )
        )
    )


def _ends_with_its_only_brace(text: Column) -> Column:
    """Whether the first `}` of a text ends it: then nothing is behind an object that it begins."""
    from pyspark.sql import functions as f

    return f.locate("}", text) == f.length(f.rtrim(text, f.lit(_SPACE)))


def _is_one_value(text: Column) -> Column:
    """Whether nothing is behind the first JSON value of a text; null where it is not JSON.

    A text that ends the array around it early hides what comes behind it, another value too.
    """
    from pyspark.sql import functions as f

    alone = f.json_array_length(f.concat(f.lit("["), text, f.lit("]")))
    with_another = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]")))
    return (alone == 1) & (with_another == 2)
