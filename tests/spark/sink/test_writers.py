"""What a task does with its rows, with a real broker and without Spark."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cometmq.errors import RowNotSent
from cometmq.spark.sink import sink_options
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.writers import SentRows, send_rows

if TYPE_CHECKING:
    from spark.live import Live


def send(live: Live, topic: str, columns: dict[str, list[Any]], **options: str) -> SentRows:
    parsed = sink_options.parse({"namesrv": live.namesrv, "topic": topic, **options})
    batch = pa.RecordBatch.from_pydict(columns)
    used = RowColumns(frozenset(columns), is_read=False)
    return send_rows(iter([batch, batch]), parsed, used, "q/0/3", 3)


def not_sent(live: Live, topic: str, columns: dict[str, list[Any]], **options: str) -> RowNotSent:
    with pytest.raises(RowNotSent) as failed:
        send(live, topic, columns, **options)
    return failed.value


def test_a_task_reports_how_many_rows_were_stored(live: Live, topic: str) -> None:
    assert send(live, topic, {"body": [b"1", b"2", b"3"]}, maxInFlight="1") == SentRows(3, 6)


def test_a_task_without_rows_reports_none(live: Live, topic: str) -> None:
    assert send(live, topic, {"body": pa.array([], pa.binary())}) == SentRows(3, 0)


@pytest.mark.parametrize(
    ("columns", "row", "reason"),
    [
        ({"body": [b"1", b"x" * (4 * 1024 * 1024 + 1)]}, 1, "has 4194305 bytes; the limit is"),
        ({"body": [b"1", b"2", None]}, 2, "is null"),
        ({"body": [b"1", b"2"], "queue_id": [1, 9]}, 1, "no broker has a queue 9"),
        ({"body": [b"1"], "tags": [" "]}, 0, "tags must be a text that is not blank"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    live: Live, topic: str, columns: dict[str, list[Any]], row: int, reason: str
) -> None:
    error = not_sent(live, topic, columns)
    assert (error.partition, error.row, error.topic) == (3, row, topic)
    assert reason in error.reason
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_topic_of_rocketmqs_own_is_refused(live: Live) -> None:
    error = not_sent(live, "SCHEDULE_TOPIC_XXXX", {"body": [b"1"]})
    assert "nothing may be sent to it" in error.reason


def test_a_topic_that_cannot_be_found_fails_the_task_and_is_not_waited_for_long() -> None:
    parsed = sink_options.parse({"namesrv": "127.0.0.1:1", "topic": "T", "retryForMs": "100"})
    batch = pa.RecordBatch.from_pydict({"body": [b"1"]})
    with pytest.raises(RowNotSent, match="row 0 of partition 3 was not sent to the topic T"):
        send_rows(iter([batch]), parsed, RowColumns(frozenset({"body"}), is_read=False), "q/0/3", 3)
