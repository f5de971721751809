"""The data source `rocketmq`: what `spark.read.format("rocketmq")` and `readStream` find.

Owns the name, the schema of a read, and the choice of the reader. Imports only Spark's base class
and the standard library, because every process that looks up data sources loads it; readers are
imported when needed.
A sink would go here, as `writer` and `streamWriter`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from cometmq.errors import SettingsError
from cometmq.spark.source import columns
from cometmq.spark.source import source_options as options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cometmq.spark.source.reader import BatchReader, StreamReader
    from cometmq.spark.source.source_options import SourceOptions


class RocketMQSource(DataSource):  # type: ignore[misc]
    """Topics of RocketMQ, ours or Apache's, as tables and as streams."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return columns.ddl(options.parse(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of one batch."""
        from cometmq.spark.source.reader import BatchReader

        return BatchReader(self._options_for(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream."""
        from cometmq.spark.source.reader import StreamReader

        parsed = self._options_for(schema)
        if parsed.ending is not None:
            raise SettingsError("endingOffsets is for batch reads; a stream has no end")
        return StreamReader(parsed)

    def _options_for(self, schema: StructType) -> SourceOptions:
        """The options, with the columns of a schema that the user gave; raises SettingsError."""
        for field in schema.fields:
            known = columns.DDL_TYPES.get(field.name)
            if known != field.dataType.simpleString():
                has = f"{field.name} is {known}" if known else f"there is no column {field.name}"
                raise SettingsError(f'the schema given to format("rocketmq") is wrong: {has}')
        return replace(options.parse(self.options), columns=tuple(schema.fieldNames()))
