"""The choice of the reader, and what the source says about options that have no effect."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from cometmq.spark.data_source import RocketMQSource
from spark.scripted import error_of

if TYPE_CHECKING:
    import pytest

WHERE = {"namesrv": "127.0.0.1:1", "topic": "T"}


def test_options_that_only_a_stream_obeys_are_named_by_a_batch_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {**WHERE, "maxOffsetsPerTrigger": "100", "idleWaitMs": "5"}
    with caplog.at_level(logging.WARNING, "cometmq.spark"):
        RocketMQSource(WHERE).reader(StructType())
        RocketMQSource(options).streamReader(StructType())
        assert not caplog.records
        RocketMQSource(options).reader(StructType())
    (record,) = caplog.records
    assert record.getMessage() == (
        "these options have no effect on a batch read: maxOffsetsPerTrigger, idleWaitMs"
    )


def test_offsets_of_a_group_are_not_committed_by_a_batch_read() -> None:
    source = RocketMQSource({**WHERE, "commitOffsets": "true", "group": "g"})
    assert "commitOffsets is for streams" in error_of(lambda: source.reader(StructType()))
