"""Rows of Arrow batches as messages, without Spark and without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.row_messages import RowChunk, RowMessages

if TYPE_CHECKING:
    from cometmq.model.message import Message

PAIRS = pa.map_(pa.string(), pa.string())


def batch(columns: dict[str, Any]) -> pa.RecordBatch:
    arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def chunks(
    *batches: pa.RecordBatch, topic: str = "T", is_read: bool = False, rows_max: int = 100
) -> list[RowChunk]:
    columns = RowColumns(frozenset(batches[0].schema.names), is_read)
    return list(RowMessages(columns, topic, "q/3/1", rows_max).chunks(batches))


def messages(columns: dict[str, Any], **more: Any) -> list[Message]:
    return [message for chunk in chunks(batch(columns), **more) for message in chunk.messages]


def number(message: Message) -> str:
    assert message.properties is not None
    return message.properties["SPARK_WRITE"]


def test_rows_are_numbered_through_chunks_and_batches() -> None:
    found = chunks(batch({"body": [b"a"] * 5}), batch({"body": ["b", "ü"]}), rows_max=2)
    assert [chunk.first for chunk in found] == [0, 2, 4, 5]
    sent = [message for chunk in found for message in chunk.messages]
    assert [number(one).rsplit("/", 1)[0] for one in sent] == [f"q/3/1/{row}" for row in range(7)]
    assert [one.body for one in sent[4:]] == [b"a", b"b", "ü".encode()]


def test_large_bodies_make_small_chunks() -> None:
    found = chunks(batch({"body": [b"x" * 3_000_000] * 6}))
    assert [len(chunk.messages) for chunk in found] == [2, 2, 2]


def test_every_column_of_a_row() -> None:
    found = messages(
        {
            "topic": ["A", "B"],
            "body": [b"1", b"2"],
            "tags": ["t", None],
            "keys": [["a", "b"], None],
            "properties": pa.array([[("colour", "red")], None], PAIRS),
            "sharding_key": ["s", None],
            "delay_level": pa.array([3, None]),
        },
        topic="",
    )
    first, second = found
    assert (first.topic, first.tags, first.keys, first.sharding_key) == ("A", "t", "a b", "s")
    assert first.properties == {"colour": "red", "SPARK_WRITE": number(first)}
    assert (first.delay_level, second.delay_level) == (3, 0)
    assert (second.topic, second.tags, second.keys, second.sharding_key) == ("B", None, None, None)


def test_the_numbers_of_rows_that_differ_in_anything_differ_at_the_same_place() -> None:
    def made(body: bytes, tags: str | None = None) -> str:
        return number(messages({"body": [body], "tags": pa.array([tags], pa.string())})[0])

    assert made(b"1") == made(b"1")
    assert len({made(b"1"), made(b"2"), made(b"1", "t"), made(b"1", "u")}) == 4


def test_rows_as_they_were_read_carry_their_origin_and_lose_what_rocketmq_sets_itself() -> None:
    stored = [("UNIQ_KEY", "7F"), ("TAGS", "t"), ("mine", "1"), ("SPARK_ORIGIN", "old")]
    columns = {
        "topic": ["In", "In"],
        "broker": ["a", None],
        "queue_id": [3, 3],
        "queue_offset": [17, 18],
        "body": [b"1", b"2"],
        "properties": pa.array([stored, stored], PAIRS),
    }
    found = chunks(batch(columns), topic="Out", is_read=True)
    first, second = found[0].messages
    assert found[0].queues is None
    assert first.topic == "Out"
    assert first.properties == {
        "mine": "1", "SPARK_WRITE": number(first), "SPARK_ORIGIN": "In/a/3/17",
    }  # fmt: skip
    assert second.properties is not None
    assert "SPARK_ORIGIN" not in second.properties


def test_an_origin_beside_the_queue_that_a_row_asks_for() -> None:
    where = {"topic": "In", "broker": "a", "queue_id": 3, "queue_offset": 17}
    columns = {"body": [b"1", b"2"], "queue_id": [1, None], "broker": ["b", None]}
    found = chunks(batch({**columns, "origin": [where, None]}))[0]
    assert found.queues == [("b", 1), (None, None)]
    assert found.messages[0].properties is not None
    assert found.messages[0].properties["SPARK_ORIGIN"] == "In/a/3/17"
    assert found.messages[1].properties is not None
    assert "SPARK_ORIGIN" not in found.messages[1].properties
