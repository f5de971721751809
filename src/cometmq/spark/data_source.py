"""The data source `rocketmq`: what reads and writes of `format("rocketmq")` find.

Owns the name, the schema of a read, and the choice of the reader or writer. Imports only Spark's
base class and the standard library, because every process that looks up data sources loads it;
readers and writers are imported when needed.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSource

from cometmq.errors import SettingsError
from cometmq.spark.handling import job_option
from cometmq.spark.pyspark_version import require_pyspark
from cometmq.spark.sink import row_columns, sink_options
from cometmq.spark.source import columns, source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cometmq.spark.sink.row_columns import RowColumns
    from cometmq.spark.sink.sink_options import SinkOptions
    from cometmq.spark.sink.writers import DataFrameBatchWriter, StreamWriter
    from cometmq.spark.source.batch_reader import BatchReader
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.spark.source.stream_reader import RefusedStreamReader, StreamReader

_log = logging.getLogger("cometmq.spark")


class RocketMQSource(DataSource):  # type: ignore[misc]
    """Topics of RocketMQ, ours or Apache's, as tables and as streams."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns that the options ask for; called by `load()`, where wrong options fail.

        With handlers (`job_option`) those of outcomes.
        """
        require_pyspark()
        job, options = job_option.take_job(self.options)
        chosen = source_options.parse(options).columns
        return columns.ddl(chosen) if job is None else job_option.OUTCOME_DDL

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of one batch."""
        require_pyspark()
        from cometmq.spark.source.batch_reader import BatchReader

        parsed = self._options_for(schema)
        if parsed.commit_offsets:
            raise SettingsError("commitOffsets is for streams: leave it out of a batch read")
        unused = source_options.without_effect_in_batch(self.options)
        if unused:
            _log.warning("these options have no effect on a batch read: %s", ", ".join(unused))
        return BatchReader(parsed)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream; one that raises the error when the options are wrong."""
        require_pyspark()
        from cometmq.spark.source.stream_reader import RefusedStreamReader, StreamReader

        job, options = job_option.take_job(self.options)
        try:
            parsed = self._options_for(schema) if job is None else source_options.parse(options)
            if parsed.ending is not None:
                raise SettingsError("an end such as endingOffsets is for batch reads: leave it out")
        except SettingsError as error:
            return RefusedStreamReader(error)
        if job is None:
            return StreamReader(parsed)
        from cometmq.spark.handling.handling_reader import HandlingReader

        return HandlingReader(parsed, job)

    def writer(self, schema: StructType, overwrite: bool) -> DataFrameBatchWriter:
        """The writer of one frame; options and columns are checked before any task starts."""
        require_pyspark()
        from cometmq.spark.sink.writers import DataFrameBatchWriter

        if overwrite:
            raise SettingsError('a topic cannot be overwritten: write with mode("append")')
        return DataFrameBatchWriter(*self._checked_write(schema), uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """The writer of a stream; made anew for each micro-batch."""
        require_pyspark()
        from cometmq.spark.sink.writers import StreamWriter

        if overwrite:
            raise SettingsError(
                'outputMode("complete") would send every row again in each batch: use "append" or '
                '"update"'
            )
        return StreamWriter(*self._checked_write(schema))

    def _checked_write(self, schema: StructType) -> tuple[SinkOptions, RowColumns]:
        """The options of a write, and the columns of its rows; raises SettingsError."""
        options = sink_options.parse(self.options)
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return options, row_columns.row_columns(types, options)

    def _options_for(self, schema: StructType) -> SourceOptions:
        """The options, with the columns of a schema that the user gave; raises SettingsError."""
        for field in schema.fields:
            known = columns.DDL_TYPES.get(field.name)
            if known != field.dataType.simpleString():
                has = f"{field.name} is {known}" if known else f"there is no column {field.name}"
                raise SettingsError(f'the schema given to format("rocketmq") is wrong: {has}')
        return replace(source_options.parse(self.options), columns=tuple(schema.fieldNames()))
