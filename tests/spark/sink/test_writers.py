"""What a task does with its rows, with a real broker and without Spark."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cometmq.errors import RowNotSent
from cometmq.spark.sink import producers, sink_options
from cometmq.spark.sink.rejected_rows import WrittenBatch
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.writers import SentRows, commit_rejected, send_rows
from spark.live import Live

if TYPE_CHECKING:
    from pathlib import Path

BATCH = WrittenBatch("q", 0)


def send(live: Live, topic: str, columns: dict[str, list[Any]], **options: str) -> SentRows:
    parsed = sink_options.parse({"namesrv": live.namesrv, "topic": topic, **options})
    batch = pa.RecordBatch.from_pydict(columns)
    used = RowColumns(frozenset(columns), is_read=False)
    return send_rows(iter([batch, batch]), parsed, used, BATCH, 3)


def not_sent(live: Live, topic: str, columns: dict[str, list[Any]], **options: str) -> RowNotSent:
    with pytest.raises(RowNotSent) as failed:
        send(live, topic, columns, **options)
    return failed.value


def test_a_task_reports_how_many_rows_were_stored(live: Live, topic: str) -> None:
    assert send(live, topic, {"body": [b"1", b"2", b"3"]}, maxInFlight="1") == SentRows(BATCH, 3, 6)


def test_a_task_without_rows_reports_none(live: Live, topic: str) -> None:
    assert send(live, topic, {"body": pa.array([], pa.binary())}) == SentRows(BATCH, 3, 0)


CANNOT_BE_SENT = [
    ({"body": [b"1", b"x" * (4 * 1024 * 1024 + 1)]}, 1, "has 4194305 bytes; the limit is"),
    ({"body": [b"1", b"2", None]}, 2, "is null"),
    ({"body": [b"1", b"2"], "queue_id": [1, 9]}, 1, "no broker has a queue 9"),
    ({"body": [b"1"], "tags": [" "]}, 0, "tags must be a text that is not blank"),
    ({"body": [b"1"], "topic": ["SCHEDULE_TOPIC_XXXX"]}, 0, "nothing may be sent to it"),
]


@pytest.mark.parametrize(("columns", "row", "reason"), CANNOT_BE_SENT)
def test_a_row_that_cannot_be_sent_is_named(
    live: Live, topic: str, columns: dict[str, list[Any]], row: int, reason: str
) -> None:
    error = not_sent(live, "" if "topic" in columns else topic, columns)
    assert (error.partition, error.row) == (3, row)
    assert reason in error.reason
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(("columns", "row", "reason"), CANNOT_BE_SENT)
def test_a_row_that_cannot_be_sent_goes_to_the_table_and_the_others_are_sent(
    live: Live,
    topic: str,
    tmp_path: Path,
    columns: dict[str, list[Any]],
    row: int,
    reason: str,
) -> None:
    count = 2 * len(columns["body"])
    where = {"rejectedPath": str(tmp_path)}
    sent = send(live, "" if "topic" in columns else topic, columns, **where)
    assert (sent.count, sent.rejected) == (count - 2, 2)
    assert not list(tmp_path.glob("*.parquet")), "nothing is seen before the commit"
    commit_rejected(sink_options.parse({"namesrv": live.namesrv, **where}), [sent])
    found = pq.read_table(tmp_path / "q-0-3.parquet").to_pylist()
    assert [one["rejected"]["row"] for one in found] == [row, row + count // 2]
    assert all(reason in one["rejected"]["reason"] for one in found)
    assert [one["body"] for one in found] == [columns["body"][row]] * 2


def test_a_topic_that_no_broker_has_differs_from_brokers_that_are_away(tmp_path: Path) -> None:
    with Live(tmp_path / "store", autoCreateTopicEnable=False, apart=True) as live:
        columns = {"body": [b"1", b"2"], "topic": [live.make_topic("Here", 2), "NoSuchTopic"]}
        error = not_sent(live, "", columns, retryForMs="100")
        assert (error.row, error.topic) == (1, "NoSuchTopic")
        assert "the topic NoSuchTopic does not exist" in error.reason
        sent = send(live, "", columns, retryForMs="100", rejectedPath=str(tmp_path))
        assert (sent.count, sent.rejected) == (2, 2)
        producers.stop_all()
        live.stop_broker()
        away = not_sent(live, "", columns, retryForMs="100", rejectedPath=str(tmp_path))
        assert "no broker is registered with the name server" in away.reason


def test_what_a_broker_refuses_in_a_batch_is_found_and_the_rest_is_sent(tmp_path: Path) -> None:
    with Live(tmp_path / "store", maxMessageSize=20_000) as live:
        topic = live.make_topic("Small", 2)
        bodies = [b"x" * (30_000 if at in (5, 77, 399) else 100) for at in range(400)]
        error = not_sent(live, topic, {"body": bodies})
        assert error.row == 5
        assert "answered code 13" in error.reason
        sent = send(live, topic, {"body": bodies}, rejectedPath=str(tmp_path))
        assert (sent.count, sent.rejected) == (794, 6)


def test_a_name_server_that_is_away_fails_the_task_also_with_a_table(tmp_path: Path) -> None:
    given = {"namesrv": "127.0.0.1:1", "topic": "T", "retryForMs": "100"}
    parsed = sink_options.parse({**given, "rejectedPath": str(tmp_path)})
    batch = pa.RecordBatch.from_pydict({"body": [b"1"]})
    with pytest.raises(RowNotSent, match="row 0 of partition 3 was not sent to the topic T"):
        send_rows(iter([batch]), parsed, RowColumns(frozenset({"body"}), is_read=False), BATCH, 3)
